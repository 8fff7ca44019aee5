"""Dask's arrays, columns of dataframes and delayed objects as arguments of compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.delayed import Delayed

import pullback as pb
from tests.distributed.losses import LOSSES, arguments

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
computed = 0


def source(x: Any, chunks: Any) -> da.Array:
    """A Dask array whose chunks count that they are computed."""

    def counted(block: Any) -> Any:
        global computed
        computed += 1
        return block

    return da.from_array(x, chunks=chunks).map_blocks(counted, dtype=x.dtype)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_chunks_are_blocks(loss: Any) -> None:
    """The bits are those of ``pb.distribute`` with the same blocks, and nothing is computed before."""
    w, x, y = arguments()
    rows, values = source(x, (300, -1)), source(y, 300)
    before = computed
    lazy = pb.value_and_grad(loss)(w, rows, values)
    assert computed == before
    assert all(isinstance(each, da.Array) for each in lazy) and [each.shape for each in lazy] == [(), (5,)]
    value, slope = dask.compute(*lazy)
    expected = pb.distribute(pb.value_and_grad(loss), over={"x": 0, "y": 0}, blocks=[300, 300, 300, 100])(w, x, y)
    assert value == expected[0] and np.array_equal(slope, expected[1])
    by_task = dask.compute(*pb.value_and_grad(loss)(source(w, -1), source(x, (300, -1)), y))
    assert by_task[0] == expected[0] and np.array_equal(by_task[1], expected[1])


def test_results_by_rows_keep_chunks() -> None:
    _, x, y = arguments(100)
    f = pb.jit(lambda x, y: {"rows": np.tanh(x) * y[:, None], "total": x.sum(), "numbers": [np.ones(3), 2]})
    result = f(da.from_array(x, chunks=((40, 60), -1)), y)
    assert result["rows"].chunks == ((40, 60), (5,))
    np.testing.assert_allclose(result["rows"].compute(), np.tanh(x) * y[:, None], rtol=1e-14)
    np.testing.assert_allclose(result["total"].compute(), x.sum(), rtol=1e-12)
    np.testing.assert_array_equal(result["numbers"][0], np.ones(3))
    along = pb.jit(lambda x: np.cumsum(x, axis=0))(da.from_array(x, chunks=(-1, 2)))
    np.testing.assert_allclose(along.compute(), np.cumsum(x, axis=0), rtol=1e-12)


def test_one_chunk_may_couple_rows() -> None:
    _, x, _ = arguments(20)
    result = pb.jit(lambda x: np.sort(x, axis=0))(da.from_array(x, chunks=-1))
    np.testing.assert_array_equal(result.compute(), np.sort(x, axis=0))


def test_columns_of_dataframes() -> None:
    _, x, y = arguments(200)
    frame = dd.from_pandas(pd.DataFrame({"a": x[:, 0], "b": y}), npartitions=3)
    doubled = pb.jit(lambda a: 2 * np.sin(a))(frame["a"])
    np.testing.assert_allclose(doubled.compute(), 2 * np.sin(x[:, 0]), rtol=1e-14)
    fit = pb.value_and_grad(lambda w, a, b: np.sqrt(np.mean((w * a - b) ** 2)))
    for value, expected in zip(dask.compute(*fit(2.0, frame["a"], frame["b"])), fit(2.0, x[:, 0], y), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-12)


def test_delayed_arguments_give_delayed_results() -> None:
    result = pb.jit(lambda x, k: (x * k).sum())(dask.delayed(np.ones)(3), 2.0)
    assert isinstance(result, Delayed) and result.compute() == 6.0


def test_elementwise_functions_of_a_grid_of_chunks() -> None:
    _, x, _ = arguments(60)
    chunks = ((20, 40), (3, 2))
    a, b = da.from_array(x, chunks=chunks), da.from_array(2 * x, chunks=chunks)
    result = pb.jit(lambda a, b, c: np.where(a > 0, np.exp(a) * b, c))(a, b, 3.0)
    assert result.chunks == chunks
    np.testing.assert_allclose(result.compute(), np.where(x > 0, np.exp(x) * 2 * x, 3.0), rtol=1e-14)


def refused(function: Callable[..., Any], *args: Any) -> Any:
    return pb.jit(function)(*args)


X = da.zeros((60, 4), chunks=(20, -1))
GRID = da.zeros((60, 4), chunks=(20, 2))
COLUMN = dd.from_pandas(pd.DataFrame({"a": np.zeros(20)}), npartitions=2)["a"]


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: refused(lambda x: np.sort(x, axis=0), X), pb.TraceError, "sort couples rows"),
        (lambda: refused(lambda x, y: x + y, X[:, 0], da.zeros(60, chunks=30)), ValueError, "which do not match"),
        (lambda: refused(lambda x, y: x + y, X[:, 0], da.zeros(60, chunks=(20, 20, 10, 10))), ValueError, "which do not match"),
        (lambda: refused(lambda x: x.sum(), GRID), pb.TraceError, "is not computed elementwise"),
        (lambda: refused(lambda x: x / x.shape[1], GRID), pb.TraceError, "depends on the shape"),
        (lambda: refused(lambda x: np.cumsum(x, axis=1), GRID), pb.TraceError, "cumsum couples rows"),
        (lambda: refused(lambda x, w: x * w, GRID, np.ones(4)), pb.TraceError, "another argument|result is not one array|not"),
        (lambda: refused(lambda a: a / len(a), COLUMN), pb.TraceError, "depends on the number of rows"),
        (lambda: refused(lambda a: np.argmax(a), COLUMN), pb.TraceError, "depends on the number of rows"),
        (lambda: refused(lambda a, b: a + b, COLUMN, np.zeros(20)), pb.TraceError, "depends on the number of rows"),
        (lambda: pb.jit(lambda: X.sum())(), pb.TraceError, "computed in parts when it is asked for"),
    ],
)
def test_what_is_refused(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_calls_with_arrays_are_as_before() -> None:
    f = pb.jit(lambda x: x.sum())
    assert f(np.ones(3)) == 3 and isinstance(f(X), da.Array) and f(np.ones(3)) == 3
