"""Gradients of loops that write few elements of an array in each iteration, which undo the writes instead of saving the array."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.ir.core.types import ArrayType, StackType

N = 9


def at_index(x: Any) -> Any:
    y = x.copy()
    for i in range(1, len(x)):
        y[i] = y[i] * y[i - 1] + np.sin(y[len(x) - 1 - i])
    return (y * y).sum()


def at_two(x: Any) -> Any:
    y = x.copy()
    for i in range(len(x) - 1):
        y[i + 1] = y[i] * y[i + 1]
        y[i] = y[i + 1] * y[(5 * i) % len(x)]
        y[i] = y[i] * y[i]
    return y.sum()


def under_if(x: Any) -> Any:
    y = x.copy()
    for i in range(1, len(x)):
        for j in range(i + 1):
            s = y[i] * y[j]
            for k in range(j):
                s = s - y[k] * y[j] * 0.1
            if i == j:
                y[i] = np.sqrt(s * s + 1)
            elif s > 0:
                y[j] = s / (2 + y[i] * y[i])
                y[0] = y[0] * y[j]
    return (y * np.arange(1.0, len(x) + 1)).sum()


def rows(x: Any) -> Any:
    a = np.outer(x, x) + 4 * np.eye(len(x))
    for k in range(len(x)):
        for i in range(k + 1, len(x)):
            f = a[i, k] / a[k, k]
            a[i] = a[i] - f * a[k]
            a[i, k] = f
    return (a * np.cos(np.arange(len(x)))).sum()


def columns(x: Any) -> Any:
    a = np.outer(x, x) + np.eye(len(x))
    for k in range(1, len(x)):
        a[1:, k] = a[1:, k] * a[1:, k - 1] / (1 + a[0, k] * a[0, k])
    return a.sum()


def static_part(x: Any) -> Any:
    y = np.concatenate([x, x])
    for i in range(len(x)):
        y[2:4] = y[2:4] * y[i + 3 : i + 5] if False else y[2:4] * np.sin(y[i])
    return (y * y).sum()


def repeats(x: Any) -> Any:
    y = np.concatenate([x] * 4)
    at = np.array([[1, 1], [2, 0], [0, 3]])
    for i in range(3):
        y[at[i]] = y[at[i]] * y[i] * np.array([1.0, 2.0])
        y[at[i]] += y[3] * y[at[i]]
    return (y * y).sum()


def at_computed(x: Any) -> Any:
    y, place = x.copy(), np.arange(len(x))
    for i in range(len(x)):
        k = place[i]
        y[k] = y[k] * y[i]
        place[(i + 3) % len(x)] = place[i]
    return y.sum()


def with_counter(x: Any) -> Any:
    y = x.copy()
    i = 0
    while i < len(x) - 1 and y[i] < 100.0:
        y[i + 1] = y[i + 1] * y[i] + 1
        i += 1
    return y.sum()


def exchanged(x: Any) -> Any:
    a, b = x.copy(), 2 * x
    for i in range(len(x)):
        a[i] = a[i] * b[i]
        a, b = b, a
    return (a * a * b).sum()


PROGRAMS = [at_index, at_two, under_if, rows, columns, static_part, repeats, at_computed, with_counter, exchanged]
DECIDED = {under_if, with_counter}
"""Programs whose values decide what they do, which cannot be unrolled."""
SAVES = {rows, under_if, exchanged}
"""Programs whose outer loop saves its array, since an inner loop writes it, or whose arrays are exchanged."""


def central(function: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    return np.array([(function(x + d) - function(x - d)) / (2 * step) for d in step * np.eye(len(x))])


@pytest.mark.parametrize("function", PROGRAMS)
def test_gradients(function: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(3).uniform(0.5, 1.5, N)
    for loops in ("roll",) if function in DECIDED else ("roll", "unroll"):
        compiled = pb.jit(function, loops=loops)
        value, gradient = pb.value_and_grad(compiled)(x)
        np.testing.assert_allclose(value, function(x), rtol=1e-12)
        np.testing.assert_allclose(gradient, central(function, x), rtol=2e-6, atol=1e-7)
        second = pb.grad(lambda z, f=compiled: pb.grad(f)(z) @ np.cos(np.arange(N)))(x)
        wanted = central(lambda z, f=compiled: pb.grad(f)(z) @ np.cos(np.arange(N)), x)
        np.testing.assert_allclose(second, wanted, rtol=2e-5, atol=1e-5)
    batch = np.stack([x, 0.9 * x, x[::-1]])
    each = [pb.grad(function)(row) for row in batch]
    np.testing.assert_allclose(pb.vmap(pb.grad(function))(batch), each, rtol=1e-10)
    _, tangent = pb.jvp(lambda z: pb.grad(function)(z).sum(), (x,), (np.ones(N),))
    np.testing.assert_allclose(tangent, central(lambda z: pb.grad(function)(z).sum(), x).sum(), rtol=2e-5, atol=1e-5)


def arrays_saved(function: Callable[[Any], Any], x: Any, at_least: int) -> list[str]:
    """Return the types of the arrays of ``at_least`` elements that a loop returns for each iteration."""
    from pullback.ir.passes.transforms.expand import grad
    from pullback.tracer.trace import trace

    traced = trace(pb.value_and_grad(pb.jit(function, loops="roll")), (x,)).function
    saved = []
    for i in walk(grad(traced).body):
        if i.op.name in ("scan", "while"):
            types = [v.type for v in i.results[i.params["carried"] :]]
            rows = [t.shape if isinstance(t, StackType) else t.shape[1:] for t in types if isinstance(t, ArrayType | StackType)]
            saved += [str(r) for r in rows if np.prod([e for e in r if isinstance(e, int)]) >= at_least]
    return saved


@pytest.mark.parametrize("function", [f for f in PROGRAMS if f not in SAVES])
def test_arrays_are_not_saved(function: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(3).uniform(0.5, 1.5, 40)
    assert not arrays_saved(function, x, 40)


def test_bits_of_infinities_and_zeros_come_back() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        s = 0.0
        for i in range(1, len(x)):
            s = s + y[i] * y[i - 1]
            y[i] = y[i] / y[i - 1] * 0.0
        return s

    x = np.array([np.inf, 2.0, -0.0, 0.0, 3.0])
    with np.errstate(all="ignore"):
        value, gradient = pb.value_and_grad(pb.jit(f, loops="roll"))(x)
        plain = pb.value_and_grad(pb.jit(f, loops="unroll"))(x)
    np.testing.assert_array_equal(value, plain[0])
    np.testing.assert_array_equal(gradient, plain[1])
