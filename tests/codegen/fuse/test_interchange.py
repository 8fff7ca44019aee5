"""Loops over elementwise iterations, which become kernels in which each element runs through all iterations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.fuse.interchange import STRIP
from pullback.codegen.lower.lower import lower
from pullback.ir.core.structure import walk
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.loops import ElementwiseScan
from pullback.ir.text import parse_function, print_function, print_module
from pullback.tracer import trace
from tests.support.targets import assert_close, compiled, run_targets

Array = Any

TEXT = """
func f(%x: f64[n], %a: f64[]) -> (f64[n]) {
  %0: f64[n] = scan %x, %a {carried=1, length=[200], reverse=false, sliced=0} (%1: i64[], %x0: f64[n], %a0: f64[]) {
    %2: f64[n] = broadcast %a0 {axes=[0]}
    %3: f64[n] = mul %2, %x0
    %4: f64[] = cast %1
    %5: f64[n] = broadcast %4 {axes=[0]}
    %6: f64[n] = sub %5, %3
    yield %6
  }
  return %0
}
"""

ONE_KERNEL = """
func f(%x: f64[n], %a: f64[]) -> (f64[n]) {
  %0: f64[n] = elementwise_scan %x, %a {carried=1, length=[200], reverse=false, sliced=0} (%1: i64[], %x0: f64[n], %a0: f64[]) {
    %2: f64[n] = broadcast %a0 {axes=[0]}
    %3: f64[n] = mul %2, %x0
    %4: f64[] = cast %1
    %5: f64[n] = broadcast %4 {axes=[0]}
    %6: f64[n] = sub %5, %3
    yield %6
  }
  return %0
}
"""

KERNEL = """kernel k0(%x0: &f64[s0], %a0: f64[], %out0: &f64[s0]) -> () {
  %0: i64[] = extent {size=s0}
  %1: i64[] = const {value=200}
  for %0 (%j: i64[]) {
    %x00: f64[] = load %x0, %j
    %2: f64[] = for %1, %x00 {trip_count=64} (%t: i64[], %x01: f64[]) {
      %3: f64[] = mul %a0, %x01
      %4: f64[] = cast %t
      %5: f64[] = sub %4, %3
      yield %5
    }
    store %2, %out0, %j
    yield
  }
  return
}
"""


def test_text() -> None:
    function = parse_function(TEXT)
    fused = fuse(function)
    assert print_function(fused).strip() == ONE_KERNEL.strip()
    assert print_module(lower(fused)).endswith(KERNEL)
    arguments = np.linspace(-1, 1, 5), np.float64(0.5)
    (expected,), (result,) = interpret(function, *arguments), interpret(fused, *arguments)
    np.testing.assert_array_equal(result, expected)


def logistic(x: Array, n: int) -> Array:
    return pb.fori_loop(0, n, lambda i, x: 2.7 * x * (1.0 - x), x)


def with_position(x: Array, n: int) -> Array:
    return pb.fori_loop(0, n, lambda i, x: x * 0.5 + i, x)


def two_arrays(x: Array, n: int) -> Array:
    return pb.fori_loop(0, n, lambda i, s: (s[1], 0.5 * s[0] + np.where(s[1] > 0.5, s[1], x)), (x, x + 1))


def with_scalars(x: Array, n: int) -> Array:
    return pb.fori_loop(0, n, lambda i, s: (s[0] * 0.5 + s[1], s[1] + 0.25, s[2] ^ i, i), (x, 0.0, 5, -1))


def of_dtypes(x: Array, n: int) -> Array:
    def step(i: Array, state: Array) -> Array:
        y, k, m = state
        return y + np.where(m, 0.5, -0.25), k + (y > 1), m ^ (k % 2 == 0)

    return pb.fori_loop(0, n, step, (x, np.zeros(x.shape, int), x > 0.5))


def looked_up(x: Array, n: int) -> Array:
    table = x.ravel()
    return pb.fori_loop(0, n, lambda i, x: 0.5 * x + np.where(i < 4, table[np.minimum(i, table.size - 1)], -1.0), x)


def complex_numbers(x: Array, n: int) -> Array:
    c = 0.25 * x + 0.5j * x

    def step(i: Array, state: Array) -> Array:
        z, m = state
        z = np.where(m, 0.5 * z * z + c + 0.125j * i, z)
        return z, z.real < 1.0

    return pb.fori_loop(0, n, step, (c * 0, x < 2))  # of products of complex numbers NumPy rounds some otherwise


def costly(x: Array, n: int) -> Array:
    """Iterations that are compiled in one order only: blocks of elements."""
    return pb.fori_loop(0, n, lambda i, x: x + 0.125 * (np.exp(-x) - np.sin(x) * np.cos(x) * np.exp(-0.25 * x)), x)


PROGRAMS = (logistic, with_position, two_arrays, with_scalars, of_dtypes, looked_up, complex_numbers, costly)
NAMES = [f.__name__ for f in PROGRAMS]


def flat(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple | list) else [result]


def kernels_of(function: Callable[..., Any], *arguments: Any) -> list[Any]:
    fused = compiled(trace(function, arguments, {}).function).fused
    return [i for i in walk(fused.body) if isinstance(i.op, ElementwiseScan)]


@pytest.mark.parametrize("function", PROGRAMS, ids=NAMES)
@pytest.mark.parametrize("n", [3, 5])
def test_every_stage(function: Callable[..., Any], n: int) -> None:
    for shape in ((0,), (1,), (9,), (2, 3))[function is looked_up :]:
        x = np.random.default_rng(1).uniform(size=shape)
        traced = trace(lambda x: function(x, n), (x,), {})
        results = run_targets(traced.function, [x])
        for target, values in results.items():
            for value, expected in zip(values, results["interpreter"], strict=True):
                assert_close(value, expected, note=(target, shape))


def by_numpy(function: Callable[..., Any], x: Array, n: int) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:

        def loop(start: int, stop: int, body: Any, state: Any) -> Any:
            for i in range(start, stop):
                state = body(i, state)
            return state

        patch.setattr(pb, "fori_loop", loop)
        return flat(function(x, n))


@pytest.mark.parametrize("function", PROGRAMS, ids=NAMES)
@pytest.mark.parametrize("count", [1, STRIP - 1, STRIP, STRIP + 1, 2 * STRIP])
def test_strips_of_iterations(function: Callable[..., Any], count: int) -> None:
    """A kernel runs a strip of iterations; the trip count is the same number or a value."""
    x = np.random.default_rng(2).uniform(size=11)
    assert kernels_of(lambda x: function(x, count), x)
    fixed, traced = pb.jit(lambda x: function(x, count)), pb.jit(function)
    traced(x, 0)
    for n, compiled_function in ((count, lambda: fixed(x)), (count, lambda: traced(x, count)), (0, lambda: traced(x, 0))):
        for value, expected in zip(flat(compiled_function()), by_numpy(function, x, n), strict=True):
            np.testing.assert_allclose(value, expected, rtol=1e-9 if np.iscomplexobj(value) or function is costly else 0)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("function", [logistic, two_arrays, with_scalars], ids=lambda f: f.__name__)
def test_all_numbers_of_elements(function: Callable[..., Any], dtype: type) -> None:
    """Elements are computed in several parts, each in vectors."""
    compiled_function = pb.jit(lambda x: function(x, 7))
    for size in (*range(40), 63, 64, 65, 100, 127, 129, 511, 700, 3000):
        x = np.random.default_rng(size).uniform(size=size).astype(dtype)
        for value, expected in zip(flat(compiled_function(x)), by_numpy(function, x, 7), strict=True):
            assert np.asarray(value).dtype == np.asarray(expected).dtype
            np.testing.assert_allclose(value, expected, rtol=0 if dtype is not np.float16 else 1e-2)


def test_strided_and_reversed_arguments() -> None:
    x = np.random.default_rng(3).uniform(size=(6, 10))
    compiled_function = pb.jit(lambda x: logistic(x, 300))
    for part in (x, x.T, x[::-1, ::2], np.asfortranarray(x)):
        np.testing.assert_array_equal(compiled_function(part), by_numpy(logistic, part, 300)[0])


def test_reversed_positions() -> None:
    """A loop that counts down, whose positions are those of its range."""

    def down(x: Array) -> Array:
        for i in range(599, -1, -1):
            x = x * 0.5 + i
        return x

    x = np.linspace(0, 1, 9)
    np.testing.assert_array_equal(pb.jit(down)(x), down(x))


def test_an_argument_that_the_loop_changes() -> None:
    def change(x: Array) -> None:
        for _ in range(300):
            x *= 0.5
            x += 1.0

    x = np.linspace(0, 1, 50)
    expected = x.copy()
    change(expected)
    pb.jit(change)(x)
    np.testing.assert_array_equal(x, expected)


def test_special_values() -> None:
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 5e-324, 1.7e308, -1e-310, 2.0])
    with np.errstate(all="ignore"):
        for function in (two_arrays, with_position):
            for value, expected in zip(flat(pb.jit(function)(x, 40)), by_numpy(function, x, 40), strict=True):
                assert_close(value, expected)


def test_threads_change_no_bits() -> None:
    x = np.random.default_rng(4).uniform(size=200_000)
    compiled_function = pb.jit(lambda x: logistic(x, 100))
    results = []
    before = pb.get_num_threads()
    try:
        for count in (1, 2):
            pb.set_num_threads(count)
            results.append(compiled_function(x))
    finally:
        pb.set_num_threads(before)
    np.testing.assert_array_equal(*results)
    np.testing.assert_array_equal(results[0], by_numpy(logistic, x, 100)[0])


@pytest.mark.parametrize("function", [logistic, two_arrays, looked_up, costly], ids=lambda f: f.__name__)
def test_gradients(function: Callable[..., Any]) -> None:
    check = pb.check_grad(lambda x: sum(np.sum(v * v) for v in flat(function(x, 6))), order=2)
    check(np.random.default_rng(5).uniform(0.1, 0.9, size=4))


def taken(z: Array) -> Array:
    return pb.scan(lambda s, row: (s * 0.5 + row, None), z[0], z)[0]


def given(z: Array) -> Array:
    return pb.scan(lambda s, _: ((s[0] * 0.5, s[0] * s[1]), s[1] - s[0]), (z[0], z[1]), None, length=len(z))[1]


def taken_and_given(z: Array) -> Array:
    def step(state: Array, rows: Array) -> Array:
        s, t = state
        s = s * 0.5 + rows[0] * t
        return (s, t + 0.25), (s, rows[1] > s)

    return pb.scan(step, (z[0], 0.5), (z, z[::-1]))[1]


def backwards(z: Array) -> Array:
    return pb.scan(lambda s, row: (s * 0.5 + row, s), z[0], z, reverse=True)


def by_index(z: Array) -> Array:
    s, out = z[0] * 0, np.zeros_like(z)
    for t in range(len(z)):
        s = s * 0.5 + z[t] * z[len(z) - 1 - t]
        out[t] = s
    return out


WITH_ROWS = (taken, given, taken_and_given, backwards, by_index)


def scanned(body: Callable[..., Any], state: Any, xs: Any, length: int | None = None, reverse: bool = False) -> Any:
    """A scan by plain Python."""
    several = isinstance(xs, tuple)
    count, rows = len(xs[0] if several else xs) if length is None else length, []
    for k in reversed(range(count)) if reverse else range(count):
        state, row = body(state, None if xs is None else tuple(x[k] for x in xs) if several else xs[k])
        rows.append(row)
    rows = rows[::-1] if reverse else rows
    if rows and isinstance(rows[0], tuple):
        return state, tuple(np.array(column) for column in zip(*rows, strict=True))
    return state, np.array(rows)


@pytest.mark.parametrize("shape", [(2, 0), (3, 1), (5, 9), (300, 17), (4, 2, 3), (3, 5000)])
@pytest.mark.parametrize("function", WITH_ROWS, ids=lambda f: f.__name__)
def test_rows(function: Callable[..., Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Iterations take rows of sequences and give rows of results."""
    z = np.random.default_rng(6).uniform(size=shape)
    results = flat(pb.jit(function)(z)), flat(pb.jit(function)(np.asfortranarray(z)))
    if len(shape) < 3:
        assert kernels_of(function, z) or function is by_index
    monkeypatch.setattr(pb, "scan", scanned)
    for result in results:
        for value, expected in zip(result, flat(function(z)), strict=True):
            np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("function", WITH_ROWS, ids=lambda f: f.__name__)
def test_rows_at_every_stage(function: Callable[..., Any]) -> None:
    z = np.random.default_rng(7).uniform(size=(4, 3))
    results = run_targets(trace(function, (z,), {}).function, [z])
    for target, values in results.items():
        for value, expected in zip(values, results["interpreter"], strict=True):
            assert_close(value, expected, note=target)


@pytest.mark.parametrize("function", [taken, given, backwards, by_index], ids=lambda f: f.__name__)
def test_gradients_with_rows(function: Callable[..., Any]) -> None:
    check = pb.check_grad(lambda z: sum(np.sum(v * v) for v in flat(function(z))), order=2)
    check(np.random.default_rng(8).uniform(0.1, 0.9, size=(4, 3)))


def test_the_gradient_of_a_loop_is_two_kernels() -> None:
    """The forward part stores rows, which the reverse part takes."""

    def loss(x: Array) -> Array:
        return np.sum(pb.fori_loop(0, 400, lambda i, x: 2.7 * x * (1.0 - x), x))

    assert len(kernels_of(pb.value_and_grad(loss), np.ones(9))) == 2
    x = np.linspace(0.1, 0.9, 2500)
    value, gradient = pb.value_and_grad(loss)(x)
    expected, slope = x, np.ones_like(x)
    for _ in range(400):
        slope, expected = slope * (2.7 * (1.0 - expected) - 2.7 * expected), 2.7 * expected * (1.0 - expected)
    np.testing.assert_allclose(value, expected.sum())
    np.testing.assert_allclose(gradient, slope, rtol=1e-9, atol=1e-300)


def complex_rows(x: Array) -> Array:
    return pb.scan(lambda s, row: (s * 0.5 + row, None), x[0] + 0j, x + 0j)[0]


def rows_of_scalars(x: Array) -> Array:
    return pb.scan(lambda s, _: ((s[0] * 0.5, s[1] + 1.0), s[1]), (x, 0.0), None, length=5)[1]


def summed(x: Array) -> Array:
    return pb.fori_loop(0, 500, lambda i, x: x * 0.5 + np.sum(x), x)


def neighbours(x: Array) -> Array:
    return pb.fori_loop(0, 500, lambda i, x: 0.5 * x + 0.5 * np.roll(x, 1, 0), x)


def costly_scalars(x: Array) -> Array:
    return pb.fori_loop(0, 500, lambda i, x: x * 0.5 + np.sin(i * 0.1), x)


STAY = (complex_rows, rows_of_scalars, summed, neighbours, costly_scalars)


@pytest.mark.parametrize("function", STAY, ids=lambda f: f.__name__)
def test_other_loops_stay(function: Callable[..., Any]) -> None:
    """Loops that read or sum other elements, or compute costly functions of scalars, run iteration by iteration."""
    assert not kernels_of(function, np.ones((5, 4)))
