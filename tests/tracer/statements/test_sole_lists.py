"""Lists that some paths bind anew and others change: runs, groups, segments, batches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

RNG = np.random.default_rng(7)
X, Y = RNG.standard_normal(300), RNG.standard_normal(300)


def runs(x: Any, bound: Any) -> Any:
    """The first and last index of each run above a bound."""
    groups: list[Any] = []
    run: list[Any] = []
    for i in range(len(x)):
        if x[i] > bound:
            run.append(i)
        elif run:
            groups.append((run[0], run[-1]))
            run = []
    if run:
        groups.append((run[0], run[-1]))
    return groups


def longest(x: Any, bound: Any) -> Any:
    best, run = 0, []
    for v in x:
        if v > bound:
            run.append(v)
        else:
            best = max(best, len(run))
            run = []
    return max(best, len(run))


def segment_means(x: Any, jump: Any) -> Any:
    """The means of segments between jumps."""
    means: list[Any] = []
    segment = [x[0]]
    for i in range(1, len(x)):
        if abs(x[i] - x[i - 1]) > jump:
            means.append(np.mean(segment))
            segment = [x[i]]
        else:
            segment.append(x[i])
    means.append(np.mean(segment))
    return np.array(means)


def batches(x: Any, most: Any) -> Any:
    """The loads of batches, each of items whose sum is bounded."""
    loads: list[Any] = []
    batch: list[Any] = []
    total = 0.0
    for v in x:
        w = abs(v)
        if total + w > most:
            loads.append(sum(batch) / max(len(batch), 1))
            batch, total = [], 0.0
            batch = [w * w]
        else:
            batch.append(w)
        total += w
    return sum(loads) + sum(batch)


def weighted(x: Any, bound: Any) -> Any:
    """Debounced events, weighted by the number of samples of each."""
    total, window = 0.0, []
    for v in x:
        window.append(v * v)
        if len(window) > 3 and window[-1] < bound:
            total = total + sum(window) * len(window)
            window = []
    return total + sum(window)


def with_a_while_loop(x: Any, bound: Any) -> Any:
    i, total = 0, 0.0
    block: list[Any] = []
    while i < len(x):
        block.append(x[i])
        if sum(block) > bound:
            total += block[-1] * len(block)
            block = []
        i += 1 if x[i] < 0 else 2
    return total + len(block)


def in_an_inner_loop(x: Any, bound: Any) -> Any:
    total = 0.0
    for row in x.reshape(-1, 20):
        run: list[Any] = []
        for v in row:
            if v > bound:
                run.append(v)
            elif len(run) > 1:
                total += run[0] * run[-1]
                run = []
            else:
                run = [v * 0.5]
        total += sum(run)
    return total


def of_pairs(x: Any, bound: Any) -> Any:
    pairs: list[Any] = []
    total = 0.0
    for i, v in enumerate(x):
        pairs.append((i, v))
        if v > bound:
            for k, w in pairs:
                total += k * w
            pairs = []
    return total, len(pairs)


def shortened(x: Any, bound: Any) -> Any:
    stack: list[Any] = []
    total = 0.0
    for v in x:
        if v > bound:
            stack.append(v)
        elif v < -1.5:
            stack = []
        elif stack:
            total += stack.pop() * v
    return total


SCALARS: list[Callable[..., Any]] = [batches, weighted, with_a_while_loop, in_an_inner_loop, shortened]
PROGRAMS: list[Callable[..., Any]] = [runs, longest, segment_means, of_pairs, *SCALARS]


def assert_equal(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_equal(x, y)
    else:
        np.testing.assert_allclose(b, a, rtol=1e-12)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_values(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for x, bound in ((X, 0.3), (Y, 0.3), (X, 9.0), (Y, -9.0)):
        assert_equal(program(x, bound), compiled(x, bound))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_loop_rolls(program: Callable[..., Any]) -> None:
    assert " rolled" in str(pb.jit(program, guards=False).explain(X, 0.3))


@pytest.mark.parametrize("program", SCALARS, ids=lambda p: p.__name__)
def test_gradients(program: Callable[..., Any]) -> None:
    x, direction = X[:60], Y[:60]
    f = pb.value_and_grad(program)
    h = 1e-6
    difference = (program(x + h * direction, 0.31) - program(x - h * direction, 0.31)) / (2 * h)
    np.testing.assert_allclose(f(x, 0.31)[1] @ direction, difference, rtol=1e-6, atol=1e-6)


def kept(x: Any) -> Any:
    """The list has another name, under which it is read after it was changed."""
    groups: list[Any] = []
    run: list[Any] = []
    groups.append(run)
    for v in x:
        if v > 0:
            run.append(v)
        else:
            run = []
    return len(groups[0]), len(run)


def changed_under_another_name(x: Any) -> Any:
    run: list[Any] = []
    other = run
    for v in x:
        if v > 1:
            run = []
        else:
            other.append(v)
        if v < -1:
            other = run
    return sum(run), sum(other), run is other


def read_by_a_function(x: Any) -> Any:
    run: list[Any] = []

    def count() -> int:
        return len(run)

    total = 0
    for v in x:
        if v > 0:
            run.append(v)
        else:
            run = []
        total += count()
    return total


def kept_by_a_default(x: Any) -> Any:
    run: list[Any] = []
    first = [run]
    for v in x:
        if v > 0:
            run.append(v)
        else:
            first[0].append(v)
            run = []
    return len(first[0]), len(run)


OTHERS: list[Callable[..., Any]] = [kept, changed_under_another_name, read_by_a_function, kept_by_a_default]


@pytest.mark.parametrize("program", OTHERS, ids=lambda p: p.__name__)
def test_lists_with_other_names(program: Callable[..., Any]) -> None:
    """They are as in Python, whatever way they are followed."""
    x = np.array([0.5, 0.2, -0.3, 1.5, -1.2, 0.7, 2.0, -0.1])
    compiled = pb.jit(program, guards=True)
    assert_equal(program(x), compiled(x))
    assert_equal(program(-x), compiled(-x))


def converged(x: Any, tol: Any) -> Any:
    """A fixed point and its history, or an error."""
    history = [x]
    for _ in range(100):
        new = 0.5 * np.cos(x)
        history.append(new)
        if abs(new - x) < tol:
            return new, history
        x = new
    raise RuntimeError("no convergence")


def collected(x: Any, tol: Any) -> Any:
    values = []
    while True:
        x = x * 0.7
        values.append(x)
        if x < tol:
            return values


def in_two_loops(x: Any, tol: Any) -> Any:
    steps: list[Any] = []
    for i in range(20):
        for j in range(20):
            x = x * 0.97
            steps.append((i, x))
            if x < tol:
                return steps, i, j
        if i > 8:
            return steps
    return steps


def with_two_returns(x: Any, tol: Any) -> Any:
    good: list[Any] = []
    k = -1
    for k in range(50):  # noqa: B007
        x = x - 0.1 * np.sin(x)
        if x < tol:
            return good, 1
        good.append(x)
        if len(good) > 30:
            return good, 2
        if x > 3:
            return None
    else:
        good.append(-1.0)
    return good, k


HISTORIES: list[Callable[..., Any]] = [converged, collected, in_two_loops, with_two_returns]


@pytest.mark.parametrize("program", HISTORIES, ids=lambda p: p.__name__)
def test_lists_that_loops_return(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for x, tol in ((np.float64(0.9), 1e-9), (np.float64(0.9), 0.5), (np.float64(0.2), 0.3), (np.float64(2.5), 0.01)):
        assert_equal(program(x, tol), compiled(x, tol))


def test_a_loop_that_returns_no_list_raises() -> None:
    with pytest.raises(RuntimeError, match="no convergence"):
        pb.jit(converged, guards=False)(np.float64(0.9), -1.0)


@pytest.mark.parametrize("program", [converged, collected, in_two_loops], ids=lambda p: p.__name__)
def test_gradients_of_histories(program: Callable[..., Any]) -> None:
    def total(x: Any) -> Any:
        result = program(x, 0.3)
        values = result[-1] if program is converged else [v for _, v in result[0]] if program is in_two_loops else result
        s = 0.0
        for k, v in enumerate(values):
            s += v * v * (k + 1)
        return s

    h = 1e-6
    difference = (total(1.1 + h) - total(1.1 - h)) / (2 * h)
    np.testing.assert_allclose(pb.grad(total)(1.1), difference, rtol=1e-6)


def closing(x: Any, log: Any) -> Any:
    """What a clause changes after the value of the ``return`` is known."""
    values: list[Any] = []
    for v in x:
        try:
            values.append(v)
            if v > 1:
                return values, len(values)
        finally:
            values.append(-v)
    return values, 0


def test_clauses_after_a_return() -> None:
    compiled = pb.jit(closing, guards=True)
    for x in (np.array([0.5, 2.0, 3.0]), np.array([0.5, 0.7])):
        assert_equal(closing(x, 0), compiled(x, 0))
