"""Stacks, queues and histories that a loop without a bound makes longer and reads: values, derivatives, batches, errors."""

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def rolled(function: Callable[..., Any]) -> Callable[..., Any]:
    return pb.jit(function, guards=False)


def simpson(x: Any) -> Any:
    """Adaptive quadrature by a stack of intervals."""
    stack, total = [(0.0, 1.0 + x[0] ** 2, 1e-5)], 0.0
    while stack:
        low, high, tolerance = stack.pop()
        middle = 0.5 * (low + high)
        coarse = (high - low) * np.sin(3 * middle) * x[1]
        fine = 0.5 * (high - low) * (np.sin(1.5 * (low + middle)) + np.sin(1.5 * (middle + high))) * x[1]
        if abs(fine - coarse) < tolerance:
            total += fine + (fine - coarse) / 3
        else:
            stack.append((low, middle, tolerance / 2))
            stack.append((middle, high, tolerance / 2))
    return total


def queue(x: Any) -> Any:
    waiting, total, steps = deque([x[0] ** 2 + 3.0]), 0.0, 0
    while len(waiting) > 0:
        v = waiting.popleft()
        total, steps = total + v * v * (steps + 1), steps + 1
        if v > 1.0:
            waiting.append(0.45 * v)
            waiting.extend([0.3 * v + 0.01 * x[1]])
    return total / steps


def history(x: Any) -> Any:
    times, states = [0.0], [x]
    while times[-1] < 2.0:
        slope = -states[-1] * (1 + times[-1])
        step = 0.1 / (1 + np.sum(slope * slope))
        times.append(times[-1] + step)
        states.append(states[-1] + step * slope)
    return np.array(times) @ np.array(states)[:, 0] + states[-1][1] + len(times)


def sorted_by_a_stack(x: Any) -> Any:
    a = x.copy()
    stack = [(0, len(a) - 1)]
    while stack:
        low, high = stack.pop()
        if low >= high:
            continue
        k = low
        for j in range(low, high):
            if a[j] < a[high]:
                a[k], a[j] = a[j], a[k]
                k += 1
        a[k], a[high] = a[high], a[k]
        stack += [(low, k - 1), (k + 1, high)]
    return a @ np.array([1.0, 10.0, 100.0, 1000.0])


def leaves(x: Any) -> Any:
    nodes: list[Any] = []
    for value in x:
        nodes.append((value, 0))
    ends = []
    while nodes:
        value, depth = nodes.pop(0)
        if depth == 5 or abs(value) < 0.25:
            ends.append(value)
            continue
        nodes.append((0.6 * value, depth + 1))
        nodes.insert(0, (value * value * 0.5, depth + 1))
    return np.sum(np.array(ends) ** 2) + max(ends)


def components(x: Any) -> Any:
    """Groups of values that are close, each by a stack of its own."""
    seen, sizes, total = np.zeros(len(x), bool), np.zeros(len(x)), 0.0
    for s in range(len(x)):
        if seen[s]:
            continue
        stack, seen[s] = [s], True
        while stack:
            k = stack.pop()
            sizes[s] += x[k]
            for j in range(len(x)):
                if not seen[j] and abs(x[j] - x[k]) < 1.0:
                    seen[j] = True
                    stack.append(j)
        total += sizes[s] ** 2
    return total


def newest(x: Any) -> Any:
    """A condition that reads the list, and an end from inside."""
    stack, total = [x[0], x[1]], 0.0
    while stack and stack[-1] < 40.0:
        v = stack.pop()
        total = total + v
        if v > 0.1:
            stack.append(0.5 * v)
        if total > 100.0:
            return total
    return total * len(stack) + 2 * total


PROGRAMS = [simpson, queue, history, sorted_by_a_stack, leaves, components, newest]
RNG = np.random.default_rng(0)
INPUTS = [np.array([0.55, 1.25, -0.75, 0.3]), np.array([1.55, 0.3, 2.1, 0.6]), np.array([-0.55, -1.35, -2.1, -0.2])]


@pytest.mark.parametrize("function", PROGRAMS)
def test_values_and_derivatives(function: Callable[..., Any]) -> None:
    compiled = rolled(function)
    slope = pb.grad(compiled)
    for x in INPUTS:
        np.testing.assert_allclose(compiled(x), function(x.copy()), rtol=1e-12)
        step = 1e-6 * RNG.standard_normal(len(x))
        difference = function(x + step) - function(x - step)
        np.testing.assert_allclose(2 * np.sum(slope(x) * step), difference, rtol=1e-5, atol=1e-10)


@pytest.mark.parametrize("function", [queue, history])
def test_second_derivatives(function: Callable[..., Any]) -> None:
    slope = pb.grad(rolled(function))
    for x in INPUTS[:2]:
        step, weights = 1e-6 * RNG.standard_normal(len(x)), RNG.standard_normal(len(x))
        second = pb.grad(lambda x, w=weights: np.sum(slope(x) * w))(x)
        change = np.sum((slope(x + step) - slope(x - step)) * weights)
        np.testing.assert_allclose(2 * np.sum(second * step), change, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("function", [simpson, queue, sorted_by_a_stack, components])
def test_rows_of_a_batch_share_the_longest_arrays(function: Callable[..., Any]) -> None:
    batch = np.array(INPUTS)
    np.testing.assert_allclose(pb.vmap(rolled(function))(batch), [function(x) for x in INPUTS], rtol=1e-12)
    slopes = [pb.grad(rolled(function))(x) for x in INPUTS]
    np.testing.assert_allclose(pb.vmap(pb.grad(rolled(function)))(batch), slopes, rtol=1e-12)


def test_lists_longer_than_the_first_arrays() -> None:
    def count_down(n: Any) -> Any:
        stack, total = [n], 0.0
        while stack:
            k = stack.pop()
            total += k
            if k > 0:
                stack.append(k - 1)
                stack.append(-1.0)
                stack.append(-2.0)
        return total, len(stack)

    def collected(x: Any, n: Any) -> Any:
        out = [x]
        while len(out) < n:
            out.append(0.5 * out[-1] + 1.0)
        return np.array(out)

    down, up = rolled(count_down), rolled(collected)
    slope = pb.grad(lambda x, n: np.sum(up(x, n)))
    for n in (0.0, 1.0, 63.0, 64.0, 65.0, 2000.0):
        assert down(n) == count_down(n)
        np.testing.assert_array_equal(up(0.25, n), collected(0.25, n))
        np.testing.assert_allclose(slope(0.25, n), 2 - 0.5 ** (max(n, 1.0) - 1))


def test_loops_without_iterations() -> None:
    def emptied(x: Any, n: Any) -> Any:
        stack, total = [], 0.5 * x
        for i in range(int(n)):
            stack.append(x * i)
        while stack:
            v = stack.pop()
            total = total + v * v
            if v > 2:
                stack.append(0.5 * v)
        return total, len(stack)

    for n in (0, 1, 5):
        assert rolled(emptied)(1.25, np.int64(n)) == emptied(1.25, n)
        assert rolled(emptied)(1.25, float(n)) == emptied(1.25, n)


def test_writes_are_those_of_one_run() -> None:
    def filled(image: Any, start: Any) -> Any:
        stack, count = [start], 0
        while stack:
            i, j = stack.pop()
            if not (0 <= i < image.shape[0] and 0 <= j < image.shape[1]) or image[i, j] != 0.0:
                continue
            image[i, j] += 7.0
            count += 1
            stack.extend([(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)])
        return count

    image = np.zeros((5, 6))
    image[2, :4] = 1.0
    one, two = image.copy(), image.copy()
    assert rolled(filled)(one, (4, 0)) == filled(two, (4, 0)) == 26
    np.testing.assert_array_equal(one, two)


def test_errors_are_pythons() -> None:
    def raising(x: Any) -> Any:
        stack = [x]
        while True:
            v = stack.pop()
            if v > 20:
                raise ValueError(f"{v} is too large")
            if v > 1:
                stack.append(3 * v)

    with pytest.raises(ValueError, match=r"^27.0 is too large"):
        rolled(raising)(3.0)
    with pytest.raises(IndexError, match="pop from empty list"):
        rolled(raising)(0.5)


def printing(x: Any) -> Any:
    stack = [x]
    while stack:
        v = stack.pop()
        pb.print("v", v)
        if v > 1:
            stack.append(0.5 * v)
    return x


def made_outside(x: Any) -> Any:
    """Loops without bounds in a loop, which make one list longer."""
    times = [0.0]
    for end in range(int(x)):
        while times[-1] < end:
            times.append(times[-1] + 0.5)
    return times[-1] + len(times)


@pytest.mark.parametrize("function", [printing, made_outside])
def test_what_has_no_rows_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(pb.TraceError):
        rolled(function)(2.5)
