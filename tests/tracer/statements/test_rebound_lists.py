"""Lists that each iteration of a loop binds anew, of lengths that values decide: values, derivatives, batches, other names."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def survivors(x: Any) -> Any:
    alive = list(x)
    for t in range(100):
        following = []
        for v in alive:
            w = v * 1.01 - 0.005 * (t % 3)
            if 0.35 < w < 3:
                following.append(w)
        alive = following
    return sum(alive) + len(alive)


def filtered(x: Any) -> Any:
    alive, bound = list(x), 0.1
    while len(alive) > 1:
        alive = [v * 1.1 for v in alive if v > bound]
        bound = bound * 1.3 + 0.05
    return sum(alive) + 10 * len(alive) + bound


def branching(x: Any) -> Any:
    """A list that becomes longer, with pairs as elements."""
    level, total = [(x[0], 1.0)], 0.0
    while level:
        following = []
        for value, weight in level:
            total += value * weight
            for k in range(3):
                if abs(value) * (k + 1) > 0.4137 and weight > 0.02:
                    following.append((value * 0.5 + 0.1 * k * x[1], weight * 0.4))
        level = following
    return total


def left(x: Any) -> Any:
    best, rest = [x[0]], 0.5
    for _ in range(60):
        new = []
        for b in best:
            if b < 4:
                new.append(b + 0.25)
                if len(new) < 5 and b * x[1] > 0.3:
                    new.append(b * 1.02)
        if len(new) == 0:
            return sum(best) * 2
        best = new
        if best[0] > 3.5 + x[2] * 0.01:
            break
    else:
        rest = 2.0
    return best[0] * len(best) + rest


def arrays(x: Any) -> Any:
    rows, count = [x, 0.5 * x], 0
    while count < 12:
        following = []
        for row in rows:
            if row[0] + row[1] < 4.0 and len(following) < 6:
                following.append(row * 1.2)
                if row[2] > 0.1:
                    following.append(row[::-1] * 0.9)
        rows, count = following, count + 1
        if len(rows) == 0:
            break
    total = 0.0
    for row in rows:
        total = total + np.sum(row * row)
    return total + count


def nested(x: Any) -> Any:
    total = 0.0
    for start in x:
        current = [start]
        while current and total < 50:
            following = []
            for v in current:
                total += v * v
                if v > 0.3137:
                    following.append(0.6 * v)
                    following.append(0.2 * v)
            current = following
        total = 0.9 * total + len(current)
    return total


def chosen(x: Any) -> Any:
    high, low = [v for v in x if v > 0.4], [v * 0.5 for v in x if v < 1.0]
    taken = high if sum(x) > 1.0 else low
    if x[0] > 0.6:
        other = low
    elif x[0] > 0:
        other = high
    else:
        other = []
    total = 0.0
    for v in taken:
        total += v * v
    for v in other:
        total = total * 0.9 + v
    return total + len(taken) * x[1]


PROGRAMS = [chosen, survivors, filtered, branching, left, arrays, nested]
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


@pytest.mark.parametrize("function", [survivors, branching])
def test_rows_of_a_batch(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function, guards=False)
    np.testing.assert_allclose(pb.vmap(compiled)(np.array(INPUTS)), [function(x) for x in INPUTS], rtol=1e-12)
    slopes = [pb.grad(compiled)(x) for x in INPUTS]
    np.testing.assert_allclose(pb.vmap(pb.grad(compiled))(np.array(INPUTS)), slopes, rtol=1e-12)


def test_more_elements_than_the_first_arrays_hold() -> None:
    def levels(x: Any, n: Any) -> Any:
        level, depth = [x], 0.0
        while depth < n:
            following = []
            for v in level:
                following.append(0.5 * v)
                if v > 1e-3:
                    following.append(0.75 * v + 0.01)
            level, depth = following, depth + 1
        return level, len(level)

    compiled = pb.jit(levels, guards=False)
    for n in (0.0, 1.0, 6.0, 7.0, 10.0):
        assert compiled(1.0, n) == levels(1.0, n)


def other_name_before(x: Any) -> Any:
    start = [x[0], x[1]]
    current = start
    while current and current[0] < 2.0:
        current = [v + 0.5 for v in current if v < 1.5]
    start.append(x[2])
    return sum(current) + len(current)


def other_name_inside(x: Any) -> Any:
    current, kept = [x[0], x[1]], [x[2]]
    while current and current[0] < 2.0:
        current = [v + 0.5 for v in current if v < 1.5]
        kept = current
    kept.append(1.0)
    return sum(current) + 10 * len(current) + len(kept)


def changed_before_it_is_bound(x: Any) -> Any:
    start = [x[0], x[1]]
    current = start
    while current and current[0] < 2.0:
        current.append(0.25)
        current = [v + 0.5 for v in current if v < 1.5]
    return sum(current) + len(start)


def changed_afterwards(x: Any) -> Any:
    start = [x[0], x[1]]
    current = start
    while current and current[0] < 2.0:
        current = [v + 0.5 for v in current if v < 1.5]
    current.append(x[2])
    return sum(current) + 10 * len(start)


def another_list(x: Any) -> Any:
    other, current = [x[2]], [x[0], x[1]]
    while current and current[0] < 2.0:
        current = [v + 0.5 for v in current if v < 1.5]
        if len(current) > 3:
            current = other
    other.append(1.0)
    return sum(current) + 10 * len(current)


def changed_after_a_branch(x: Any) -> Any:
    high, low = [v for v in x if v > 0.4], [v * 0.5 for v in x if v < 1.0]
    taken = low
    if x[0] > 0.6:
        taken = high
    taken.append(5.0)
    return sum(high) + 10 * sum(low)


def changed_in_a_branch(x: Any) -> Any:
    high, low = [v for v in x if v > 0.4], [v * 0.5 for v in x if v < 1.0]
    taken = low
    if x[0] > 0.6:
        high.append(7.0)
        taken = high
    low.append(1.0)
    return sum(taken) + 10 * len(taken)


def none_or_list(x: Any) -> Any:
    current, steps = None, 0
    while steps < 3 + x[0]:
        current = [v for v in x if v > 0.1 * steps]
        steps += 1
    return 0 if current is None else len(current)


@pytest.mark.parametrize(
    "function",
    [other_name_before, other_name_inside, changed_before_it_is_bound, changed_afterwards, another_list,
     changed_after_a_branch, changed_in_a_branch, none_or_list],
)
def test_lists_of_several_names_are_right_or_refused(function: Callable[..., Any]) -> None:
    for x in (*INPUTS, np.array([2.5, 0.1, 0.2, 0.3])):
        try:
            result = pb.jit(function, guards=False)(x.copy())
        except pb.TraceError:
            continue
        np.testing.assert_allclose(result, function(x.copy()))


def simplex_search(x: Any, steps: Any) -> Any:
    points = [x, x + np.array([0.1, 0.0]), x + np.array([0.0, 0.1])]
    values = [float(np.sum((p - 1.0) ** 4)) for p in points]
    for _ in range(steps):
        order = np.argsort(values)
        points = [points[i] for i in order]
        values = [values[i] for i in order]
        trial = points[0] + points[1] - points[2]
        value = float(np.sum((trial - 1.0) ** 4))
        if value < values[1]:
            points[2], values[2] = trial, value
        else:
            for i in range(1, 3):
                points[i] = 0.5 * (points[i] + points[0])
                values[i] = float(np.sum((points[i] - 1.0) ** 4))
    return points[0], values


def mapping_bound_anew(x: Any, steps: Any) -> Any:
    state = {"a": x[0], "b": x[1]}
    for _ in range(steps):
        state = {"a": state["b"], "b": state["a"] * 0.9}
        state["a"] += 0.5
    return state


def list_under_two_names(x: Any, steps: Any) -> Any:
    s = [x[0], x[1], 1.0]
    before = s
    for _ in range(steps):
        s[0] = s[0] * 0.5
        s = [s[1], s[2], s[0]]
    return s, before


def previous_list(x: Any, steps: Any) -> Any:
    s = [x[0], x[1], 1.0]
    previous = s
    for _ in range(steps):
        previous = s
        s = [v * 0.5 + 1 for v in s]
        s[1] += previous[0]
    return s, previous


def test_containers_of_known_length_that_iterations_bind_anew_and_change() -> None:
    for function in (simplex_search, mapping_bound_anew, list_under_two_names, previous_list):
        compiled = pb.jit(function)
        for x in (np.array([0.5, -0.3]), np.array([-1.0, 2.0])):
            np.testing.assert_equal(compiled(x, 300), function(x, 300), function.__name__)
    for function in (simplex_search, mapping_bound_anew, previous_list):
        assert "unrolled: 300" not in str(pb.jit(function).explain(np.array([0.5, -0.3]), 300)), function.__name__
