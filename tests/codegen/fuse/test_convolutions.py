"""Convolutions with vectors and images of taps, in every way they are written: values at the borders, numbers that are not
finite, and loops that have no conditions inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.signal
from numpy.lib.stride_tricks import sliding_window_view

import pullback as pb
from pullback.codegen.cpu.schedule import schedule
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.ops.kernel.kernel import For
from pullback.tracer import trace
from tests.support.agreement import agrees
from tests.support.targets import compiled

Array = Any
Form = Callable[[Array, Array], Array]


def convolved(x: Array, k: Array) -> Array:
    return np.convolve(x, k)


def same(x: Array, k: Array) -> Array:
    return np.convolve(x, k, "same")


def valid(x: Array, k: Array) -> Array:
    return np.convolve(x, k, "valid")


def correlated(x: Array, k: Array) -> Array:
    return np.correlate(x, k, "full")


def filtered(x: Array, k: Array) -> Array:
    return scipy.signal.lfilter(k, 1.0, x)


def sliced(x: Array, k: Array) -> Array:
    n = x.shape[0] - k.shape[0] + 1
    return sum(k[j] * x[j : j + n] for j in range(k.shape[0]))


def padded(x: Array, k: Array) -> Array:
    m = k.shape[0]
    wide = np.pad(x, m - 1)
    return sum(k[m - 1 - j] * wide[j : j + x.shape[0] + m - 1] for j in range(m))


def added_up(x: Array, k: Array) -> Array:
    total = np.zeros(x.shape[0] + k.shape[0] - 1)
    for j in range(k.shape[0]):
        total[j : j + x.shape[0]] += k[j] * x
    return total


def rolled(x: Array, k: Array) -> Array:
    return sum(k[j] * np.roll(x, j) for j in range(k.shape[0]))


def windows(x: Array, k: Array) -> Array:
    return sliding_window_view(x, k.shape[0]) @ k


FORMS: list[Form] = [convolved, same, valid, correlated, filtered, sliced, padded, added_up, rolled, windows]
LONGEST = 64
"""The most taps that are written out one by one."""


def integers(*shape: int) -> Array:
    """Small integers, of which sums are exact in any order."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(float)


@pytest.mark.parametrize("taps", [1, 2, 5, 30])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_forms(form: Form, taps: int) -> None:
    """Values to the bit at lengths around borders and vectors, gradients those of the sums written as products of a matrix."""
    for length in (taps, 3 * taps + 8):
        x, k = integers(length), integers(taps)
        agrees(form, x, k, rtol=0.0)
        weights = integers(*form(x, k).shape)
        by_x, by_k = pb.grad(lambda x, k, weights=weights: np.sum(weights * form(x, k)), argnums=(0, 1))(x, k)
        np.testing.assert_array_equal(by_x, [weights @ form(e, k) for e in np.eye(length)])
        np.testing.assert_array_equal(by_k, [weights @ form(x, e) for e in np.eye(taps)])


@pytest.mark.parametrize("taps, dtype", [(3, np.float32), (LONGEST, np.float64), (LONGEST + 1, np.complex128), (90, np.int64)])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_many_taps(taps: int, dtype: Any, mode: Any) -> None:
    """Arrays shorter than the taps, as long, and longer."""
    for length in (2, taps, taps + 1, 150):
        x, k = integers(length).astype(dtype), integers(taps).astype(dtype)
        x, k = (x + 1j * x[::-1], k - 1j) if dtype is np.complex128 else (x, k)
        agrees(lambda x, k: (np.convolve(x, k, mode), np.correlate(x, k, mode)), x, k, rtol=1e-6)
        agrees(lambda x, k: scipy.signal.convolve(x, k, mode, method="direct"), x, k, rtol=1e-6)


@pytest.mark.parametrize("shapes", [((9, 7), (3, 2)), ((3, 2), (9, 7)), ((2, 9), (5, 3)), ((12, 11), (9, 8)), ((12, 14), (7, 7))])
@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_images(shapes: tuple[tuple[int, int], ...], mode: Any) -> None:
    a, b = (integers(*shape) for shape in shapes)
    calls: list[Form] = [
        lambda a, b: scipy.signal.convolve2d(a, b, mode),
        lambda a, b: scipy.signal.correlate2d(a, b, mode),
        lambda a, b: scipy.signal.convolve2d(a, b, mode, "symm"),
        lambda a, b: scipy.signal.correlate2d(a, b, mode, "wrap"),
        lambda a, b: scipy.signal.convolve(a, b, mode, "direct"),
    ]
    is_larger = all(n >= m for n, m in zip(*shapes))
    for call in calls if is_larger else calls[:2] + calls[4:]:
        if mode != "valid" or is_larger or shapes == ((3, 2), (9, 7)):
            agrees(call, a, b, rtol=0.0)


@pytest.mark.parametrize("taps", [3, 30, LONGEST + 1])
def test_taps_that_are_not_finite(taps: int) -> None:
    """Convolutions and filters multiply no infinity by the zeros outside of the array."""
    x, k = integers(200), integers(taps)
    x[100], k[0], k[taps // 2], k[-1] = np.inf, np.inf, -np.inf, np.nan
    for form in (convolved, same, valid, correlated, filtered):
        agrees(form, x, k, rtol=0.0)
    rows = np.stack([x, 2.0 * x])
    for axis in (0, 1):
        agrees(lambda x, k, axis=axis: scipy.signal.lfilter(k, 1.0, x, axis), rows, k, rtol=0.0)


def loops(function: Callable[..., Any], *args: Array) -> list[Instruction]:
    """The innermost loops of the kernels of a function, as the CPU runs them."""
    kernels = [f for f in compiled(trace(function, args, {}).function).lowered.functions if f.kind == "kernel"]
    result = [i for k in kernels for i in walk(schedule(k).body) if isinstance(i.op, For)]
    return [i for i in result if not any(k.regions for k in i.regions[0].instructions)]


def conditions(loop: Instruction) -> int:
    return sum(i.op.name in ("select", "load_if", "lt", "ge") for i in loop.regions[0].instructions)


@pytest.mark.parametrize("taps, dtype", [(5, np.complex128), (30, np.float64), (LONGEST, np.float64)])
def test_the_inside_has_no_conditions(taps: int, dtype: Any) -> None:
    """The inner loop loads no tap either: it covers nearly all results, and a loop with all conditions covers a few."""
    x, k = np.ones(1000, dtype), np.ones(taps, dtype)
    for form in (convolved, same, valid, padded):
        of_form = loops(form, x, k)
        inside = [i for i in of_form if not i.params.get("short")]
        assert inside and not any(map(conditions, inside)), form
        assert len(inside) == len(of_form) or any(map(conditions, of_form)), form
        if taps == 5:
            reads = [i.operands[0] for i in inside[0].regions[0].instructions if i.op.name == "load"]
            assert len(set(reads)) == 1, form


@pytest.mark.parametrize("form", [convolved, same, padded, sliced, added_up], ids=lambda form: form.__name__)
def test_the_inside_of_a_gradient_has_no_conditions(form: Form) -> None:
    """This holds where a convolution is also summed, and where contributions of shifted views are added."""
    gradient = pb.value_and_grad(lambda x, k: np.sum(form(x, k) ** 2), argnums=(0, 1))
    inside = [i for i in loops(gradient, np.ones(1000), np.ones(30)) if not i.params.get("short")]
    assert inside and not any(map(conditions, inside))
