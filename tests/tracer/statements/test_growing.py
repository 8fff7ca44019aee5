"""Lists that branches and loops make longer, and lists that are indexed by values: values, gradients, errors, refusals."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pullback as pb


def rolled(function: Callable[..., Any]) -> Callable[..., Any]:
    return pb.jit(function, guards=False)


def chosen(x: Any) -> Any:
    kept = [x[0]]
    for value in x:
        if value > 0:
            kept.append(value * value)
    return np.array(kept) @ np.array(kept) + len(kept)


def under_a_branch(x: Any) -> Any:
    out = []
    if x[0] > 0:
        out.append(x[1])
        out.append(x[2] * 2)
    else:
        out.append(x[0])
    return sum(out) * len(out)


def peaks(x: Any) -> Any:
    where: list[int] = []
    for i in range(1, len(x) - 1):
        if x[i] > x[i - 1] and x[i] >= x[i + 1]:
            if where and i - where[-1] < 2:
                where[-1] = i
                continue
            where.append(i)
    total = 0.0
    for i in where:
        total += x[i] * (i + 1)
    return total + len(where)


def pairs(x: Any) -> Any:
    history = [(x[0], 1.0)]
    for value in x:
        if value < -1.0:
            break
        history.append((value, history[-1][0] + 0.5 * history[-1][1]))
    total = 0.0
    for a, b in history:
        total += a * b
    return total + np.array(history)[-1, 1]


def rows(x: Any) -> Any:
    states = [x]
    for _ in range(200):
        states.append(0.5 * states[-1] + np.sin(x))
        if states[-1][0] > 1.25:
            states.append(0.25 * states[-2])
    return np.mean(states) + np.sum(np.array(states)[-1])


def unbounded(x: Any) -> Any:
    s, steps = 1.0 + x[0] * x[0], []
    times: list[int] = []
    while s < 50.0:
        s = 1.5 * s + 0.25
        steps.append(s)
        if s > 10:
            steps.append(-0.5 * s)
            times.append(len(times))
    return np.sum(np.array(steps)) + max(steps) + sum(times)


def stack_of_scalars(x: Any) -> Any:
    stack = [0.5]
    for value in x:
        if value > 0:
            stack.append(value)
        elif len(stack) > 1:
            b, a = stack.pop(), stack.pop()
            stack.append(a * b + value)
    return stack[-1] + 10 * len(stack)


def through_objects(x: Any) -> Any:
    log = SimpleNamespace(values=[], calls=0)
    other = log.values

    def note(v: Any) -> None:
        log.calls += 1
        if v > 0:
            log.values.append(v)
            log.values += [0.5 * v, 1.0]

    for value in x:
        note(value)
    return sum(other) * log.calls if other else 0.0 * x[0]


def fresh_in_each_iteration(x: Any) -> Any:
    total = 0.0
    for i in range(120):
        row = []
        for value in x:
            if value > 0.01003 * i:
                row.append(value * i)
        if len(row) > 0:
            total += sum(row)
    return total


def indexed(x: Any) -> Any:
    weights = [1.0, 2.5, -3.0]
    k, total = 0, 0.0
    while total < 30.0 and k < 9:
        total += abs(weights[k % 3]) + 0.1 * weights[-1 - k % 2] + x[0] ** 2
        k += 1
    return total


def ways(x: Any) -> Any:
    table = [1] + [0] * 10
    for coin in [1, 2, 5]:
        for a in range(coin, 11):
            if x[0] > a - 20:
                table[a] += table[a - coin]
    return table[10] * x[1]


def bins(x: Any) -> Any:
    table = [0.0] * 6
    for value in x:
        j = 0
        while abs(value) > j:
            table[j] += value * value
            j += 1
    return sum([v * (k + 1) for k, v in enumerate(table)])


def nested(x: Any) -> Any:
    out = []
    for value in x:
        for k in range(3):
            if value > 0.5 * k:
                out.append(value - 0.5 * k)
            if value < -1.0:
                break
        else:
            out.append(0.25 * value)
    return np.array(out).sum() if len(out) > 2 else x[0] * 1.0


PROGRAMS = [
    chosen, under_a_branch, peaks, pairs, rows, unbounded, stack_of_scalars, through_objects, fresh_in_each_iteration, indexed,
    ways, bins, nested,
]  # fmt: skip
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
        weights = RNG.standard_normal(len(x))
        second = pb.grad(lambda x, w=weights: np.sum(slope(x) * w))(x)
        change = np.sum((slope(x + step) - slope(x - step)) * weights)
        np.testing.assert_allclose(2 * np.sum(second * step), change, rtol=1e-4, atol=1e-9)


def test_one_program_serves_all_lengths() -> None:
    compiled: Any = rolled(unbounded)
    compiled(np.array([0.5]))
    before = compiled.cache_info().compiles
    for first in (0.0, 1.0, 3.0):
        x = np.array([first])
        np.testing.assert_allclose(compiled(x), unbounded(x))
    assert compiled.cache_info().compiles == before


def test_arrays_of_lists() -> None:
    def arrays(x: Any) -> Any:
        a, b, c = [], [], [(0, 0.5)]
        for i in range(len(x)):
            if x[i] > 0:
                a.append(i)
                b.append(x * i)
                c.append((i, x[i]))
        return np.array(a, dtype=int), np.array(c), np.array(a), len(a), b[0] if b else x

    def rows(x: Any) -> Any:
        out = []
        for value in x:
            if value > 0:
                out.append(x * value)
        return np.array(out)

    for x in (*INPUTS, np.zeros(4)):
        for got, want in zip(rolled(arrays)(x), arrays(x), strict=True):
            np.testing.assert_array_equal(got, want)
        if max(x) > 0:
            np.testing.assert_array_equal(rolled(rows)(x), rows(x))
        else:  # NumPy's has the shape (0,)
            with pytest.raises(ValueError, match=r"np.array of an empty list whose elements would be arrays"):
                rolled(rows)(x)


def test_errors_are_pythons() -> None:
    def popped(x: Any) -> Any:
        stack = [1.0]
        for value in x:
            if value < 0:
                stack.pop()
            else:
                stack.append(value)
        return stack[-1]

    def far(x: Any, k: Any) -> Any:
        values = [x, 2 * x, 3 * x]
        while x < 10:
            x = x + values[k]
            k = k + 1
        return x

    assert rolled(popped)(np.array([1.0, -1.0])) == 1.0
    with pytest.raises(IndexError, match="pop from empty list"):
        rolled(popped)(np.array([-1.0, -1.0, 2.0]))
    with pytest.raises(IndexError, match="list index out of range"):
        rolled(popped)(np.array([-1.0]))
    assert rolled(far)(1.0, np.int64(-3)) == far(1.0, -3)
    with pytest.raises(IndexError, match="list index out of range"):
        rolled(far)(0.5, np.int64(2))


def written_after(x: Any) -> Any:
    u, frames = x.copy(), [x]
    for i in range(3):
        u[0] += 1.0
        if x[i] > 0:
            frames.append(u)
    return np.array(frames).sum()


def written_element(x: Any) -> Any:
    frames = [x.copy()]
    for value in x:
        if value > 0:
            frames.append(x * value)
            frames[-1][0] = 5.0
    return np.array(frames).sum()


def list_elements(x: Any) -> Any:
    out = [[0.0]]
    for value in x:
        if value > 0:
            out.append([value])
            out[-1][0] = 7.0
    return out[-1][0] * len(out)


def longer_while_it_is_gone_over(x: Any) -> Any:
    out = [1.0]
    for value in x:
        if value > 0:
            out.append(value)
    total = 0.0
    for v in out:
        total += v
        if total < 2:
            out.append(0.5)
    return total


def other_structures(x: Any) -> Any:
    out: list[Any] = [1.0]
    for value in x:
        if value > 0:
            out.append((value, 1))
    return len(out)


def returned_list(x: Any) -> Any:
    out = [1.0]
    for value in x:
        if value > 0:
            out.append(value)
    return out


def reset(x: Any) -> Any:
    out, best = [0.0], 0.0
    for value in x:
        if value > 0:
            out.append(value)
        else:
            best = max(best, sum(out))
            out = [0.0]
    return best + sum(out)


def two_lists(x: Any) -> Any:
    a, b = [0.5], [1.5]
    target = a if x[0] > 0 else b
    target.append(x[1])
    return len(a) + 10 * len(b)


@pytest.mark.parametrize(
    "function",
    [
        written_after, written_element, list_elements, longer_while_it_is_gone_over, other_structures, returned_list, reset,
        two_lists,
    ],
)  # fmt: skip
def test_what_has_no_rows_is_right_or_refused(function: Callable[..., Any]) -> None:
    for x in INPUTS:
        want = function(x.copy())
        try:
            got = rolled(function)(x)
        except pb.TraceError:
            continue
        np.testing.assert_allclose(got, want)


def written_by_a_later_loop(x: Any) -> Any:
    kept = [x[0]]
    for start in range(3):
        for _ in range(start, int(x[1])):
            kept.append(x[0] - start)
    kept.append(-x[2])
    for i in range(4):
        w = 0
        while x[2] != i and w < 5:
            w += 1
            kept[-1] = 0.5 * (kept[-1] + x[2])
    return kept[-1], i, len(kept), sum(kept)


def test_a_list_that_loops_and_an_append_make_longer_is_written_by_a_later_loop() -> None:
    for x in (np.array([1.0, 3.0, 0.5]), np.array([2.0, 0.0, -1.0]), np.array([2.0, -1.0, 2.0])):
        np.testing.assert_allclose(rolled(written_by_a_later_loop)(x), written_by_a_later_loop(x))


def divided(x: Any, t: Any) -> Any:
    low: list[Any] = []
    high: list[Any] = []
    for v in x:
        if v < t:
            low.append(v)
        else:
            high.append(v)
    return low + high, [1.5] + low, high + [2.5], low[:-1] + high[1:], sum(low + high)


def parts_in_a_loop(x: Any, t: Any) -> Any:
    out: list[Any] = []
    for i in range(len(x)):
        part = []
        for j in range(i % 5):
            if x[j] > t:
                part.append(x[i] * j)
        out.extend(part)
        out += [v for v in x[:4] if v > t + 0.01 * i]
    return out, len(out)


def parts_by_elements(x: Any, t: Any) -> Any:
    out: list[Any] = []
    for i in range(len(x)):
        part = [x[i] * j for j in range(7) if x[j] > t]
        for k in range(len(part)):
            out.append(part[k] - k)
    return out


def doubled(x: Any, t: Any) -> Any:
    kept = [v for v in x if v > t]
    kept += kept
    kept.extend(kept[:2])
    return kept


def convex_hull(points: Any) -> Any:
    points = points[np.lexsort((points[:, 1], points[:, 0]))]

    def cross(o: Any, a: Any, b: Any) -> Any:
        return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])

    lower: list[Any] = []
    for p in points:
        while len(lower) >= 2 and cross(lower[-2], lower[-1], p) <= 0:
            lower.pop()
        lower.append(p)
    upper: list[Any] = []
    for p in reversed(points):
        while len(upper) >= 2 and cross(upper[-2], upper[-1], p) <= 0:
            upper.pop()
        upper.append(p)
    return np.array(lower[:-1] + upper[:-1])


@pytest.mark.long
def test_lists_of_lengths_by_value_are_joined() -> None:
    x = np.random.default_rng(3).standard_normal(60)
    for function in (divided, parts_in_a_loop, parts_by_elements, doubled):
        compiled = rolled(function)
        for t in (0.0, 0.7, 9.0, -9.0):
            assert repr(compiled(x, t)) == repr(function(x, t)), (function.__name__, t)
    hull = rolled(convex_hull)
    for k in range(4):
        points = np.random.default_rng(k).standard_normal((50, 2))
        np.testing.assert_array_equal(hull(points), convex_hull(points))


def test_loops_that_join_lists_are_rolled() -> None:
    x = np.random.default_rng(3).standard_normal(60)
    for function in (parts_in_a_loop, parts_by_elements):
        report = str(rolled(function).explain(x, 0.1))
        assert "for i in range(len(x)):" in report and "unrolled: 60" not in report, report


def test_the_derivative_of_joined_lists() -> None:
    def loss(x: Any) -> Any:
        return sum([v * v * (k + 1) for k, v in enumerate(divided(x, 0.1)[0])])

    x = np.random.default_rng(4).standard_normal(20)
    step = 1e-6 * np.eye(20)
    expected = [(loss(x + e) - loss(x - e)) / 2e-6 for e in step]
    np.testing.assert_allclose(pb.grad(loss)(x), expected, rtol=1e-5, atol=1e-7)


def inserted_in_order(x: Any, t: Any) -> Any:
    ordered = sorted(x)
    for _ in range(5):
        k = 0
        while k < len(ordered) and ordered[k] < t:
            k += 1
        ordered.insert(k, t)
        if ordered.pop(0) > t:
            break
        t = t * 0.5
    return ordered


def test_a_sorted_list_is_changed_as_values_decide() -> None:
    x = np.random.default_rng(5).standard_normal(20)
    compiled = rolled(inserted_in_order)
    for t in (0.3, -5.0, 5.0):
        assert repr(compiled(x, t)) == repr(inserted_in_order(x, t))
        assert repr(compiled(list(map(float, x)), t)) == repr(inserted_in_order(list(map(float, x)), t))


def last_of_runs(p: Any, n: Any) -> Any:
    out = [p]
    for _ in range(4):
        k = 0
        while n >= 1 and k < 5:
            k += 1
            out.append(-1.25 * k)
        if len(out) % 2:
            result = out[0] + out[-1]
            break
    return result


def test_lists_that_iterations_in_branches_make_longer() -> None:
    """Iterations of a short loop that may end run in branches, one in another; each makes the list longer by a value."""
    arguments = np.float64(1.5), np.int64(4)
    assert pb.jit(last_of_runs, guards=False)(*arguments) == last_of_runs(*arguments)


LABEL = "low"


def labels(x: Any) -> Any:
    out = []
    for v in x:
        if v < 0.0:
            out.append(LABEL)
    return out


def pairs_of_none(x: Any) -> Any:
    out = []
    if np.sum(x) < 0.0:
        out.append((None, "sum"))
    return {"events": out}, len(out)


@pytest.mark.parametrize("program", [labels, pairs_of_none])
def test_lists_of_one_text_or_none_have_their_length(program: Callable[..., Any]) -> None:
    """The elements are the same in each call, so only their number is computed."""
    compiled = pb.jit(program, guards=False)
    for x in (np.array([-1.0, -2.0]), np.array([1.0, 2.0]), np.array([-3.0, 1.0])):
        assert compiled(x) == program(x)


def test_stored_lists_of_one_text_have_their_length() -> None:
    def make() -> Any:
        log: list[str] = []

        def f(x: Any) -> Any:
            if np.sum(x) < 0.0:
                log.append("negative")
                return 0.0
            return np.dot(x, x)

        return f, log

    (plain, expected), (function, log) = make(), make()
    compiled = pb.jit(function, guards=False)
    for x in (np.array([1.0, 2.0]), np.array([-1.0, -2.0]), np.array([-3.0, 1.0])):
        assert compiled(x) == plain(x)
        assert log == expected
