"""Blocks of rows in this process: values, gradients, bound arguments, blocks, and errors."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import pullback as pb
from tests.distributed.losses import LOSSES, arguments, squares

OVER = {"x": 0, "y": 0}


@pytest.mark.parametrize("blocks", [None, 1, 7, [0, 300, 0, 699, 1], 1000])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_value_and_gradient(loss: Any, blocks: Any) -> None:
    w, x, y = arguments()
    value, slope = pb.distribute(pb.value_and_grad(loss), over=OVER, blocks=blocks)(w, x, y)
    expected, expected_slope = pb.value_and_grad(loss)(w, x, y)
    assert type(value) is np.float64 and type(slope) is np.ndarray
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-9, atol=1e-12)


def test_bits_depend_on_blocks_alone() -> None:
    """Bound or not, with any number of threads, and from any layout of the rows."""
    w, x, y = arguments()
    fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=8)
    value, slope = fit(w, x, y)
    threads = pb.get_num_threads()
    try:
        for count in (1, 2):
            pb.set_num_threads(count)
            for again in (fit(w, x, y), fit.bind(x=x, y=y)(w), fit(w, np.asfortranarray(x), y), fit.bind(y=y)(w=w, x=x)):
                assert again[0] == value and np.array_equal(again[1], slope)
    finally:
        pb.set_num_threads(threads)


def test_results_of_the_same_blocks_are_the_sum_of_the_tree() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=12)
    total = pb.distribute(lambda x: np.sum(x), over={"x": 0}, blocks=4)
    parts = [pb.jit(lambda x: np.sum(x))(x[k : k + 3]) for k in range(0, 12, 3)]
    assert total(x) == (parts[0] + parts[1]) + (parts[2] + parts[3])


def test_columns_trees_and_rows_that_stay() -> None:
    rng = np.random.default_rng(0)
    data = {"a": rng.normal(size=(3, 50)), "b": rng.normal(size=(2, 50))}

    def f(w: Any, data: Any) -> Any:
        z = w @ data["a"] + data["b"][0]
        return {"sum": z.sum(), "rows": np.tanh(z), "same": w, "count": data["a"].shape[1]}

    w = rng.normal(size=3)
    expected = f(w, data)
    result = pb.distribute(f, over={"data": 1}, blocks=[10, 0, 40])(w, data)
    np.testing.assert_allclose(result["sum"], expected["sum"])
    np.testing.assert_allclose(result["rows"], expected["rows"])
    assert result["same"] is not None and np.array_equal(result["same"], w) and result["count"] == 50


def test_gradients_by_rows_and_higher_orders() -> None:
    w, x, y = arguments(60)
    by_x = pb.distribute(pb.grad(squares, 1), over=OVER, blocks=3)(w, x, y)
    np.testing.assert_allclose(by_x, pb.grad(squares, 1)(w, x, y), rtol=1e-12)
    curvature = pb.distribute(pb.hessian(squares), over=OVER, blocks=3)(w, x, y)
    np.testing.assert_allclose(curvature, pb.hessian(squares)(w, x, y), rtol=1e-12)


def test_maps_need_no_over() -> None:
    """A map over rows is split whatever it maps: here a loop with another number of iterations for each row."""

    def root(a: Any, start: Any) -> Any:
        y = start
        while abs(y * y - a) > 1e-12:
            y = 0.5 * (y + a / y)
        return y

    rates = np.linspace(0.1, 200.0, 9)
    result = pb.distribute(pb.vmap(root), blocks=4)(rates, np.ones(9))
    np.testing.assert_array_equal(result, pb.vmap(root)(rates, np.ones(9)))
    slopes = pb.distribute(pb.vmap(pb.grad(lambda r: np.sin(r) * r)), blocks=2)(rates)
    np.testing.assert_allclose(slopes, np.cos(rates) * rates + np.sin(rates), rtol=1e-12)
    shifted = pb.distribute(pb.vmap(lambda r, c: r * c, (0, None)), blocks=2)(rates, 3.0)
    np.testing.assert_array_equal(shifted, rates * 3.0)


def test_bound_contents_are_those_at_bind() -> None:
    w, x, y = arguments(50)
    fit = pb.distribute(squares, over=OVER, blocks=3)
    bound = fit.bind(x=x, y=y)
    before = bound(w)
    x *= 2
    assert bound(w) == before
    assert fit(w, x, y) != before
    assert bound.bind(x=x)(w) == fit(w, x, y)


def test_results_share_no_memory() -> None:
    w, x, _ = arguments(20)

    def f(w: Any, x: Any) -> Any:
        total = (x * w).sum(axis=0)
        return total, total, w

    first, second, same = pb.distribute(f, over={"x": 0}, blocks=3)(w, x)
    assert np.array_equal(first, second) and np.array_equal(same, w)
    assert not np.may_share_memory(first, second)


SCALE = 1.0


def test_values_from_outside_are_read_at_each_call() -> None:
    global SCALE
    weights = np.ones(50)

    def f(x: Any) -> Any:
        return SCALE * np.sum(weights * x)

    x = np.arange(50.0)
    fit = pb.distribute(f, over={"x": 0}, blocks=4)
    assert fit(x) == x.sum()
    SCALE = 2.0
    weights[:] = 0.5
    assert fit(x) == x.sum()
    weights[0] = np.nan
    assert np.isnan(fit(x))


def test_optimisers() -> None:
    w, x, y = arguments()
    fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=4).bind(x=x, y=y)
    result = scipy.optimize.minimize(fit, np.zeros(5), jac=True)
    alone = scipy.optimize.minimize(pb.value_and_grad(squares), np.zeros(5), (x, y), jac=True)
    np.testing.assert_allclose(result.x, alone.x, rtol=1e-6)
    slope = pb.distribute(pb.grad(squares), over=OVER, blocks=4).bind(x=x, y=y)
    w = pb.optimizers.adam(lambda w, i: slope(w), np.zeros(5), num_iters=200, step_size=0.05)
    np.testing.assert_allclose(w, alone.x, atol=1e-2)


def test_one_program_serves_blocks_of_all_lengths() -> None:
    w, x, y = arguments(2000)
    fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=[1000, 900, 100])
    fit(w, x, y)
    before = pb.cache_info().compiles
    pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=[500, 700, 800])(w, x, y)
    assert pb.cache_info().compiles == before


def test_threads_share_a_function() -> None:
    w, x, y = arguments(500)
    fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=5).bind(x=x, y=y)
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.extend(fit(w)[0] for _ in range(5))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20 and len(set(results)) == 1


def test_branches_on_reduced_values() -> None:
    fit = pb.distribute(lambda x: x if x.sum() > 0 else -2 * x, over={"x": 0}, blocks=2)
    for sign in (1.0, -1.0):
        x = sign * np.arange(5.0)
        np.testing.assert_array_equal(fit(x), x if sign > 0 else -2 * x)


def test_no_rows_and_few_rows() -> None:
    for rows in (0, 1, 2):
        x = np.arange(float(rows))
        fit = pb.distribute(lambda x: (np.sum(x), np.max(x, initial=-1.0), 2 * x), over={"x": 0}, blocks=3)
        total, top, doubled = fit(x)
        assert total == x.sum() and top == np.max(x, initial=-1.0) and np.array_equal(doubled, 2 * x)


def test_checks_fail_at_the_users_line() -> None:
    table, positions = np.ones(4), np.array([0, 1, 7])
    fit = pb.distribute(lambda t, k: t[k].sum(), over={"k": 0}, blocks=3)
    assert fit(table, positions % 4) == 3
    with pytest.raises(IndexError, match="index 7 is out of bounds") as raised:
        fit(table, positions)
    assert any("test_in_process.py" in note for note in raised.value.__notes__)


def wrong(**changed: Any) -> Any:
    w, x, y = arguments(20)
    settings = {"over": OVER, "blocks": None} | changed
    return pb.distribute(squares, **settings)(w, x, y)


def lengths_of_values(f: Any) -> Any:
    return pb.distribute(f, over={"x": 0}, blocks=2)(np.array([1.0, -1.0, 2.0]), np.arange(10.0))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: wrong(over={"z": 0}), ValueError, r"over names \['z'\], and squares has w, x, y"),
        (lambda: wrong(over={}), ValueError, "over names no argument"),
        (lambda: wrong(over={"x": 2, "y": 0}), ValueError, r"axis 2 of x, which has shape \(20, 5\)"),
        (lambda: wrong(over={"x": 1, "y": 0}), ValueError, "different numbers of rows: x has 5, y has 20"),
        (lambda: wrong(over={"x": "rows"}), TypeError, "as an int, not 'rows'"),
        (lambda: wrong(over={"x": 0}), pb.TraceError, "y has an element for each row along axis 0"),
        (lambda: wrong(over=None), TypeError, "needs over"),
        (lambda: wrong(blocks=0), ValueError, "at least 1"),
        (lambda: wrong(blocks=[5, 5]), ValueError, "the blocks have 10 rows, and the arguments 20"),
        (lambda: wrong(blocks=[25, -5]), ValueError, "none is negative"),
        (lambda: wrong(blocks="many"), TypeError, "not 'many'"),
        (lambda: wrong(client="remote"), TypeError, "client is a distributed.Client"),
        (lambda: pb.distribute(squares, over=OVER).bind(z=1), TypeError, "has no argument z"),
        (lambda: pb.distribute(squares, over=OVER)(*arguments(5), 1), TypeError, "takes w, x, y, and got 4 arguments"),
        (lambda: pb.distribute(squares, over=OVER)(x=np.ones(3)), TypeError, "needs w"),
        (lambda: pb.distribute(lambda x: x, over={"x": 0})(3.0), TypeError, "is float and has no rows"),
        (lambda: pb.distribute(lambda x: np.sort(x), over={"x": 0})(np.ones(3)), pb.TraceError, "sort couples rows"),
        (lambda: lengths_of_values(lambda w, x: np.sum(x) * w[w > 0]), pb.TraceError, "slice has a length that values decide"),
        (lambda: lengths_of_values(lambda w, x: np.sum(x[:, None] * w[w > 0], axis=0)), pb.TraceError, "that values decide"),
        (lambda: pb.distribute(lambda x: x.__setitem__(0, 1), over={"x": 0})(np.ones(3)), pb.TraceError, "changes x"),
        (lambda: pb.jit(pb.distribute(lambda x: x.sum(), over={"x": 0}))(np.ones(3)), pb.TraceError, "for calls from outside"),
    ],
)
def test_errors(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_dask_is_not_imported() -> None:
    """Neither by the package, nor by a call without a client."""
    program = (
        "import sys, numpy as np, pullback as pb\n"
        "pb.distribute(lambda x: x.sum(), over={'x': 0}, blocks=2)(np.ones(4))\n"
        "assert not {'dask', 'distributed'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
