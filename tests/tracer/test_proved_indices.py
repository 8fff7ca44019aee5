"""Indices that the bounds of Python ints prove to be in range: which are, and that no other one is."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.tracer.trace import trace


def rises(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        s += x[i] * i
    return s


def falls(x: Any) -> Any:
    for i in range(len(x) - 2, -1, -1):
        x[i] = x[i] + 0.5 * x[i + 1]
    return x.sum()


def neighbours(x: Any) -> Any:
    for i in range(1, len(x) - 1):
        x[i] = 0.5 * (x[i - 1] + x[i + 1])
    return x.sum()


def below(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        for j in range(i):
            s += x[i] * x[j]
    return s


def above(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        for j in range(i + 1, len(x)):
            s += x[i] * x[j]
    return s


def below_falls(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        for j in range(i, -1, -2):
            s += x[i] * x[j] * j
    return s


def remainders(x: Any) -> Any:
    s = 0.0
    for i in range(3 * len(x)):
        s += x[i % len(x)] * i + x[i // 3] + x[(i & 7) % len(x)]
    return s


def reversed_pairs(x: Any) -> Any:
    s = 0.0
    for k, i in enumerate(reversed(range(len(x)))):
        s += x[k] * x[i] * k
    return s


def leaves(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        s += x[i]
        if s > 3:
            break
    return s


def columns(x: Any) -> Any:
    y = x.reshape(-1, 1) * np.ones((1, 3))
    for i in range(1, len(x)):
        y[i, 0] += y[i - 1, 2]
        y[i, 2] = y[i, 0] * y[i, -1]
    return y.sum()


PROVED = [rises, falls, neighbours, below, above, below_falls, remainders, reversed_pairs, leaves, columns]


def past_the_end(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        s += x[i + 1]
    return s


def before_the_start(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        s += x[i - 1]
    return s


def computed(x: Any) -> Any:
    s, k = 0.0, 0
    for i in range(len(x)):
        s += x[k]
        k = (k * 3 + i) % len(x)
    return s


def of_an_array(x: Any) -> Any:
    s = 0.0
    at = (x * 0).astype(int)
    for i in range(len(x)):
        s += x[at[i]]
    return s


NOT_PROVED = [past_the_end, before_the_start, computed, of_an_array]


def accesses(function: Callable[..., Any], *arguments: Any) -> list[bool]:
    """Return, for each access at computed indices, whether all of them are proved."""
    body = trace(function, arguments).function.body
    indexed = [i for i in walk(body) if i.op.name.startswith(("gather", "scatter"))]
    return [tuple(i.params.get("in_range", ())) == tuple(i.params["axes"]) for i in indexed]


@pytest.mark.parametrize("function", PROVED)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_proved(function: Callable[..., Any], dtype: Any) -> None:
    x = np.random.default_rng(0).normal(size=400).astype(dtype)
    known = accesses(function, x.copy())
    assert known and all(known)
    names = [i.op.name for i in walk(trace(function, (x.copy(),)).function.body)]
    assert "check" not in names
    for n in (0, 1, 2, 3, 40):
        if not n and function is remainders:
            continue
        x = np.linspace(-1, 1, n).astype(dtype)
        for options in ({}, {"debug": True}):
            np.testing.assert_allclose(pb.jit(function, **options)(x.copy()), function(x.copy()), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", PROVED)
def test_gradients(function: Callable[..., Any]) -> None:
    x = np.random.default_rng(1).normal(size=12)
    first = pb.grad(function)(x.copy())
    for k in range(12):
        step = np.eye(12)[k] * 1e-6
        slope = (function(x + step) - function(x - step)) / 2e-6
        np.testing.assert_allclose(first[k], slope, rtol=1e-5, atol=1e-7)
    rows = np.stack([x, 2 * x])
    np.testing.assert_allclose(pb.vmap(function)(rows.copy()), [function(r.copy()) for r in rows], rtol=1e-12)
    np.testing.assert_allclose(pb.vmap(pb.grad(function))(rows.copy())[0], first, rtol=1e-10)


@pytest.mark.parametrize("function", NOT_PROVED)
def test_not_proved(function: Callable[..., Any]) -> None:
    x = np.linspace(0, 1, 400)
    assert not all(accesses(function, x))
    try:
        wanted = function(x)
    except Exception as error:
        with pytest.raises(type(error)), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pb.jit(function)(x)
    else:
        np.testing.assert_allclose(pb.jit(function)(x), wanted)


def test_rows_that_run_too_long_read_nothing_outside() -> None:
    """A mapped loop runs as often as its longest row, for all rows."""

    def total(x: Any, first: Any) -> Any:
        s = 0.0
        for i in range(first, 6):
            s += x[i]
        return s

    def inner(x: Any, counts: Any) -> Any:
        s = 0.0
        for c in counts:
            for i in range(c):
                s += x[i]
        return s

    x, first = np.arange(6.0), np.array([0, 5, 3, 6, 9])
    for options in ({}, {"debug": True}):
        rows = pb.vmap(pb.jit(total, **options), in_axes=(None, 0))(x, first)
        np.testing.assert_allclose(rows, [total(x, int(k)) for k in first])
    counts = np.array([[0, 2, 6], [6, 1, 0]])
    np.testing.assert_allclose(pb.vmap(inner, in_axes=(None, 0))(x, counts), [inner(x, c) for c in counts])
    with pytest.raises(IndexError):
        pb.vmap(inner, in_axes=(None, 0))(x, counts + 1)


def test_a_range_whose_length_overflows_proves_nothing() -> None:
    def f(x: Any, start: Any, stop: Any) -> Any:
        s = 0.0
        for i in range(start % 4, stop):
            s += x[i % 8]
            if s > 100:
                break
        return s

    def g(x: Any, stop: Any) -> Any:
        s = 0.0
        for i in range(5, min(stop, 8)):
            s += x[i]
        return s

    x = np.arange(8.0)
    assert pb.jit(f)(x, 1, 7) == f(x, 1, 7)
    for stop in (-(2**63), -1, 3, 6, 2**62):
        assert pb.jit(g)(x, np.int64(stop)) == g(x, stop)


def test_an_int_that_wraps_around_where_its_check_fails_proves_nothing() -> None:
    def f(x: Any, k: Any) -> Any:
        s = 0.0
        for i in range(len(x)):
            s += x[((int(k) % 2**62) * 4 + i) // 2**61 % 2**40 // 2**37]
        return s

    x = np.linspace(0, 1, 400)
    assert pb.jit(f)(x, np.int64(3)) == f(x, 3)
    with pytest.raises(OverflowError):
        pb.jit(f)(x, np.int64(2**61))


def test_a_wrong_proof_is_an_error_of_the_interpreter() -> None:
    from pullback.ir.interpret import interpret
    from pullback.ir.text import parse_function

    text = """pullback-ir 2

func f(%x: f64[3], %i: i64[]) -> (f64[]) {
  %0: f64[] = gather %x, %i {axes=[0], in_range=[0]}
  return %0
}
"""
    function = parse_function(text)
    assert interpret(function, np.arange(3.0), np.int64(2))[0] == 2
    for k in (-1, 3):
        with pytest.raises(IndexError, match="proved"):
            interpret(function, np.arange(3.0), np.int64(k))


def solves(a: Any, b: Any) -> Any:
    x = np.zeros(len(b))
    for i in range(len(b)):
        x[i] = (b[i] - np.dot(a[i, :i], x[:i])) / a[i, i]
    return (x * x).sum()


def eliminates(a: Any, b: Any) -> Any:
    a, n = a + 0.0, len(b)
    for k in range(n - 1):
        for i in range(k + 1, n):
            a[i, k + 1 :] -= a[i, k] / a[k, k] * a[k, k + 1 :]
    return (np.diag(a) * b).sum()


def windows(a: Any, b: Any) -> Any:
    s = 0.0
    for i in range(len(b)):
        s += np.dot(a[0, i : len(b) - 1], b[i : len(b) - 1]) + b[: 2 * i].sum() + b[i - 3 :: 2].sum() + b[: i - 2].sum()
    return s


@pytest.mark.parametrize("function", [solves, eliminates, windows])
def test_slices_with_equal_bounds_have_one_extent(function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 3, 40):
        a, b = rng.normal(size=(n, n)) + n * np.eye(n), rng.normal(size=n)
        compiled = pb.jit(function, loops="roll")
        np.testing.assert_allclose(compiled(a, b), function(a, b), rtol=1e-12, atol=1e-12)
        gradient = pb.grad(compiled)(a, b)
        direction = rng.normal(size=(n, n))
        slope = (function(a + 1e-6 * direction, b) - function(a - 1e-6 * direction, b)) / 2e-6
        np.testing.assert_allclose((gradient * direction).sum(), slope, rtol=1e-5, atol=1e-6)
    text = str(pb.jit(function, loops="roll").stages(a, b)["trace"])
    if function is not windows:
        assert " check " not in text
        assert text.count("define_extent") == (1 if function is solves else 2)


def slices_of_two_lengths(x: Any) -> Any:
    a, b = x[x > 0], x[x > 0.5]
    return a[1:], b[1:], a[::2], b[::2], a[:-1], b[:-1], a[::-1], b[::-1], a[2:][::-1], b[2:][::-1], a[-3:], b[-3:]


def slices_of_lengths_by_formulas(x: Any) -> Any:
    a = x[x > 0]
    b = np.concatenate([a, a, x])
    return a[::3], b[::3], b[1 : a.size], a[1 : a.size], b[-a.size :], np.diff(a), np.diff(b), np.histogram(a, a.size + 1)[0]


@pytest.mark.parametrize("function", [slices_of_two_lengths, slices_of_lengths_by_formulas])
def test_equal_slices_of_arrays_with_different_lengths_by_value_have_different_extents(function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    compiled = pb.jit(function, guards=False)
    for n in (1, 2, 30):
        x = rng.normal(size=n)
        x[0] = 1.0
        results, expected = compiled(x), function(x)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, wanted)
    gradient = pb.grad(lambda x: sum((k + 1) * np.sum(np.sin(y)) for k, y in enumerate(slices_of_two_lengths(x))))(x)
    expected = np.zeros(n)
    a, b = np.flatnonzero(x > 0), np.flatnonzero(x > 0.5)
    for k, taken in enumerate(slices_of_two_lengths_at(a, b)):
        np.add.at(expected, taken, (k + 1) * np.cos(x[taken]))
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def slices_of_two_lengths_at(a: Any, b: Any) -> Any:
    return a[1:], b[1:], a[::2], b[::2], a[:-1], b[:-1], a[::-1], b[::-1], a[2:][::-1], b[2:][::-1], a[-3:], b[-3:]
