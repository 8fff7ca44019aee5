"""Loops in loops: how often their bodies are traced, and loops that differ from what an earlier trace of them showed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer.statements import rolled_loops
from pullback.tracer.trace import trace
from tests.tracer.statements.test_branches import from_text

X = np.array([0.5, -2.0, 3.0, 0.25, -1.0, 4.0, 1.5, -0.5])


def nested(depth: int, body: str) -> Any:
    """Return a function with nested loops over a range of values, around a body."""
    lines = ["def function(x, n):", "    total, y = 0.0, x.copy()"]
    for k in range(depth):
        lines.append(f"{'    ' * (k + 1)}for i{k} in range({'n' if k % 2 else 'len(x)'}):")
    lines += ["    " * (depth + 1) + line for line in body.splitlines()]
    return from_text("\n".join([*lines, "    return total, y", ""]), "function")


BODIES = (
    "if x[i0] > total:\n    total += x[i0]",
    "if y[i0] > 0:\n    y[i0] -= 0.5\n    total += 1",
    "y[i0] = total * x[i0]\ntotal = y[i0] + 1",
)


@pytest.mark.parametrize("body", BODIES)
def test_the_traces_of_nested_loops_do_not_multiply(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count, before = 0, rolled_loops.Rolled.attempt

    def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return before(*arguments)

    monkeypatch.setattr(rolled_loops.Rolled, "attempt", counted)
    counts = []
    x = np.resize(X, 300)
    for depth in range(1, 6):
        count = 0
        trace(nested(depth, body), (x, 250))
        counts.append(count)
    # Begun from nothing, they would be 3, 14, 53, 188, and so on.
    assert counts[0] <= 3 and counts[-1] <= 85, counts  # begun from nothing: 4, 28, 148, ..
    for depth in range(1, 4):
        function = nested(depth, body)
        result, expected = pb.jit(function, guards=False)(X, 3), function(X, 3)
        np.testing.assert_allclose(result[0], expected[0], rtol=1e-14)
        np.testing.assert_allclose(result[1], expected[1], rtol=1e-14)


FUNCTIONS = """
def another_array_after_the_first_time(x):
    y, z, k, total = x.copy(), 2 * x, 0, 0.0
    for v in np.resize(x, 300):
        if k == 0:
            y[0] = v
        if k % 3 == 1:
            z[k % 4] += v
        k += 1
        total += y[0] * z[1]
    return total, y + z

def one_of_two_arrays(x):
    arrays, k = [x.copy(), 2 * x], 0
    for v in np.resize(x, 300):
        arrays[k % 2][0] += v
        k += 1
    return arrays[0] - arrays[1]

def no_change_the_second_time(x):
    k, total = 2, 0.0
    for part in (x, 2 * x):
        for v in part:
            if v > 0:
                total += v * k
            k = 3
    return total, x[k]

def another_type_the_second_time(x):
    total, last = 0.0, 0
    for part in (x, x.astype(int), x[:4]):
        for v in part:
            if v > total:
                last = 1.0 * v
                total = total + 1.0 * v
            else:
                last = last + 1.0
                total = total + 0.5
    return float(total), float(last)

def written_the_first_time_alone(x):
    y, z = x.copy(), x.copy()
    for k in range(3):
        for i in range(len(x)):
            if k == 0:
                y[i] = x[i] + 1
            else:
                z[i] = y[i] * z[i]
    return y, z

def left_the_first_time_alone(x):
    count = 0
    for k in range(3):
        for v in x:
            if k == 0 and v > 1:
                break
            count = count + k
    return count

def helper(x, limit, start):
    total = start
    for v in x:
        if v > limit:
            total = total + v
    return total

def one_function_for_several_types(x):
    return helper(x, 0.0, 0.0), helper(x, 1, x[:2]), helper(x[:3], -5.0, 1), helper(2 * x, 0.5, helper(x, 0.5, 0.0))

def zero_iterations_inside(x):
    total, last = 0.0, 1
    for i in range(len(x)):
        last = 2
        for j in range(i):
            for k in range(j, i):
                last = last + 0.5
                if x[k] > x[j]:
                    total = total + last
    return total, last

def swapped(x):
    a, b = x.copy(), 2 * x
    for i in range(6):
        for j in range(len(x)):
            for k in range(3):
                b[j] = a[j] + k
            a, b = b, a
    return a, b

def lists_of_rows(x):
    out = []
    for i in range(len(x)):
        row = []
        for j in range(len(x)):
            if x[i] > x[j]:
                row.append(x[j])
        out.append(sum(row))
    return np.array(out)
"""


@pytest.mark.parametrize("name", [line.split("(")[0][4:] for line in FUNCTIONS.splitlines() if line.startswith("def ")])
def test_a_loop_that_is_another_one_the_next_time_is_pythons(name: str) -> None:
    function: Callable[..., Any] = from_text(FUNCTIONS, name)
    if name == "helper":
        arguments: tuple[Any, ...] = (X, 0.0, 1.0)
    else:
        arguments = (X,)
    result, expected = pb.jit(function, guards=False)(*arguments), function(*arguments)
    rows = zip(result, expected) if isinstance(expected, tuple) else [(result, expected)]
    for a, b in rows:
        assert np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("name", ["zero_iterations_inside", "swapped", "written_the_first_time_alone"])
def test_derivatives(name: str) -> None:
    function = from_text(FUNCTIONS, name)

    def loss(x: Any) -> Any:
        result = function(x)
        return np.sum(result[0] * 1.5) + np.sum(result[1] * 0.5)

    pb.check_grad(loss)(X)
