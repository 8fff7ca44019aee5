"""Variables that expressions bind by ``:=`` where values decide whether they are evaluated."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def in_a_condition(x: Any) -> Any:
    y, n = x[0] + 3.0, 0
    while (d := y * 0.5) > 0.1 and (e := d + n) < 5.0:
        y, n = d, n + 1
    return y + n * d + e


def elements(x: Any) -> Any:
    total, i = 0.0, 0
    while i < len(x) and (v := x[i]) > -1.0:
        total, i = total + v * v, i + 1
    return total + i


def in_a_test(x: Any) -> Any:
    total = 0.0
    for v in x:
        if v > 0.25 and (w := v * v) < 2.0:
            total += w
    return total


def in_both_sides(x: Any) -> Any:
    total, m = 0.0, 1.0
    for v in x:
        total += (m := v * m + 1) if v > 0.5 else (m := m * 0.5)
    return total + m


def several(x: Any) -> Any:
    count, y = 0, 0.0
    for v in x:
        if v < 0.2 or (y := y + v) > 2.0 or (y := y * 1.1) < 0.5:
            count += 1
    return count + y


def chained(x: Any) -> Any:
    total, z = 0.0, 0.0
    for v in x:
        if 0.1 < v < (z := v * v + 0.3) < 2.9:
            total += z
    return total + z


def returned(x: Any) -> Any:
    for i in range(len(x)):
        if x[i] > 0.3 and (q := x[i] * 3) > 2.5:
            return q + i
    return 0.5 * x[0]


def on_a_stack(x: Any) -> Any:
    stack, total = [x[0] ** 2, x[1] ** 2], 0.0
    while stack and (v := stack[-1]) < 40.0:
        stack.pop()
        total = total + v
        if v > 0.1:
            stack.append(0.5 * v)
    return total


def in_with(x: Any) -> Any:
    total = 0.0
    with np.errstate(all="ignore"):
        for v in x:
            with np.errstate(over="ignore"):
                if v > 0 and (w := v + total) < 2.5:
                    total = w
    return total * x[0]


PROGRAMS = [in_a_condition, elements, in_a_test, in_both_sides, several, chained, returned, on_a_stack, in_with]
RNG = np.random.default_rng(0)
INPUTS = [np.array([0.55, 1.25, -0.75, 0.3]), np.array([1.55, 0.3, 2.1, 0.6]), np.array([-0.55, -1.35, -2.1, -0.2])]


@pytest.mark.parametrize("function", PROGRAMS)
def test_values_and_derivatives(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    slope = pb.grad(compiled)
    for x in INPUTS:
        np.testing.assert_allclose(compiled(x), function(x.copy()), rtol=1e-12)
        step = 1e-6 * RNG.standard_normal(len(x))
        difference = function(x + step) - function(x - step)
        np.testing.assert_allclose(2 * np.sum(slope(x) * step), difference, rtol=1e-5, atol=1e-10)


def test_unbound() -> None:
    def last(x: Any) -> Any:
        for v in x:
            if v > 0.5 and (w := v * 2) > 2.0:
                pass
        return w

    compiled = pb.jit(last, guards=False)
    assert compiled(INPUTS[0]) == last(INPUTS[0])
    with pytest.raises(UnboundLocalError, match="cannot access local variable 'w'"):
        compiled(INPUTS[2])
