"""NumPy functions that cannot be traced, or called so: NumPy's error, or a TraceError that says what to write."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pullback.ir.ops.control.regions import CheckFailed
from pullback.tracer import TraceError
from tests.support.agreement import agrees
from tests.support.numpy_calls import X, run
from tests.support.versions import since

Call = Callable[..., Any]


REFUSED: list[tuple[Call, str]] = [
    (lambda x: np.ravel(x.T * 2, order="K"), "order="),
    (lambda x: np.broadcast_arrays(x, x[None])[0].__setitem__(0, 1.0), "broadcast"),
    (lambda x: np.power.at(x, (np.argmin(x, axis=0)[None] * np.ones((25, 1), int), 0), 2.0), "at"),
]
BY_VALUE: list[Call] = [
    lambda x: x[x > 0],
    lambda x: np.nonzero(x),
    lambda x: np.unique(x),
    lambda x: np.where(x > 0),
    lambda x: np.compress(x[0] > 0, x, axis=1),
    lambda x: np.repeat(x, np.argmax(x)),
    lambda x: x[True],
    lambda x: np.copy(x)[x > 0].__iadd__(1),
]
SAME_ERRORS: list[Call] = [
    lambda x: np.linalg.cond(x, 1),
    lambda x: x[3],
    lambda x: x[0, -5],
    lambda x: x[[0, 3]],
    lambda x: x[0, 0, 0],
    lambda x: x[..., ...],
    lambda x: x[1.5],
    lambda x: x["a"],
    lambda x: x[np.array([0.5])],
    lambda x: x[np.array([True, False])],
    lambda x: np.sum(x, axis=2),
    lambda x: np.sum(x, axis=(0, 0)),
    lambda x: np.sum(x, axis=1.5),
    lambda x: np.max(x[:0], axis=0),
    lambda x: np.argmax(x[:0]),
    lambda x: np.max(x, where=x > 0),
    lambda x: x.reshape(5, 3),
    lambda x: x.reshape(-1, -1),
    lambda x: np.transpose(x, (0, 0)),
    lambda x: np.transpose(x, (0,)),
    lambda x: np.squeeze(x, 0),
    lambda x: np.broadcast_to(x, (4, 4)),
    lambda x: np.concatenate([x, x.T]),
    lambda x: np.concatenate([]),
    lambda x: np.stack([x, x[0]]),
    lambda x: np.split(x, 3, axis=1),
    lambda x: x @ x,
    lambda x: np.dot(x, x),
    lambda x: x @ x[0, 0],
    lambda x: np.einsum("ij,jk", x, x),
    lambda x: np.einsum("ij,k", x),
    lambda x: np.einsum("ijk", x),
    lambda x: np.einsum("ij->k", x),
    lambda x: np.einsum(x, [0, 52]),
    lambda x: np.einsum(x, [-1, 0]),
    lambda x: np.einsum("ij,ij,ij,ij->", x, x, x, x, optimize=["einsum_path", (2, 3), (0, 1)]),
    lambda x: np.einsum("ij,kj,kl->il", x, x, x, optimize=["einsum_path", (1, 1), (0, 1)]),
    lambda x: np.tensordot(x, x, 1),
    *since(np, "2.1.0", lambda x: np.clip(x, 0, 1, min=2)),
    lambda x: np.var(x, ddof=1, correction=1),
    lambda x: np.cross(x, x),
    lambda x: np.diag(x[0, 0]),
    lambda x: np.where(x, x),
    lambda x: np.rot90(x, axes=(0, 0)),
    lambda x: np.copy(x).__setitem__(0, np.ones(3)),
    lambda x: np.copy(x).__setitem__(7, 1.0),
    lambda x: np.swapaxes(x, 0, 5),
    lambda x: np.moveaxis(x, [0, 1], [0]),
    lambda x: np.take(x, 99),
    lambda x: np.roll(x, 1, axis=3),
    lambda x: np.pad(x, -1),
    lambda x: np.average(x, weights=[1.0, 2.0]),
    lambda x: np.average(x[:0], axis=1),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_refused(call: Call, words: str) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        run(call, X)
    assert caught.value.file == __file__


@pytest.mark.parametrize("call", BY_VALUE)
def test_results_with_lengths_that_values_decide(call: Call) -> None:
    agrees(call, X)


@pytest.mark.parametrize("call", SAME_ERRORS)
def test_same_errors(call: Call) -> None:
    with pytest.raises(Exception) as expected:
        call(X.copy())
    with pytest.raises(type(expected.value)):
        run(call, X)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda x, i: x[i], "IndexError"),
        (lambda x, i: np.take(x, i, axis=0), "IndexError"),
        (lambda x, i: np.choose(i, [x, x]), "ValueError"),
        (lambda x, i: np.copy(x).__setitem__(slice(None), x[x > 0]), "ValueError"),
        (lambda x, i: np.average(x, axis=0, weights=(i + x[:, 0]) * 0), "ZeroDivisionError"),
    ],
)
def test_checks_fail_when_run(call: Call, error: str) -> None:
    with pytest.raises(CheckFailed) as caught:
        run(call, X, np.array(3))
    assert caught.value.error == error
