"""Python's own loops under `pb.jit(loops="roll")`: values, gradients, writes, ends, refusals; one trace for all trip counts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.tracer.statements import register
from pullback.tracer.trace import trace


def rolled(function: Callable[..., Any]) -> Callable[..., Any]:
    return pb.jit(function, loops="roll")


def bisect(a: float, b: float) -> Any:
    low, high = a, b
    while high - low > 1e-10:
        middle = 0.5 * (low + high)
        if middle**3 - 2 > 0:
            high = middle
        else:
            low = middle
    return low


def newton(x: Any) -> Any:
    y = x
    for _ in range(50):
        step = (y * y - x) / (2 * y)
        y = y - step
        if abs(step) < 1e-13:
            break
    return y


def first_above(x: Any, level: float) -> Any:
    for i in range(len(x)):
        if x[i] > level:
            return x[i] * 3
    return 0.0 * x[0]


def sweeps(u: Any) -> Any:
    u = u.copy()
    count = 0
    while count < 500:
        largest = 0.0
        for i in range(1, len(u) - 1):
            new = 0.5 * (u[i - 1] + u[i + 1])
            change = abs(new - u[i])
            if change > largest:
                largest = change
            u[i] = new
        count += 1
        if largest < 1e-9:
            break
    return np.sum(u)


def adaptive(y: Any, tolerance: float) -> Any:
    time, step = 0.0, 0.1
    while time < 1.0:
        if time + step > 1.0:
            step = 1.0 - time
        first = -y
        second = -(y + step * first)
        error = abs(0.5 * step * (second - first))
        if error > tolerance:
            step = 0.5 * step
            continue
        time += step
        y = y + 0.5 * step * (first + second)
        if error < 0.1 * tolerance:
            step = 2 * step
    return y


def mean_of_positive(x: Any) -> Any:
    total, count = 0.0, 0
    for value in x:
        if value < 0:
            continue
        total += value
        count += 1
    return total / count if count > 0 else 0.0 * x[0]


def eliminated(matrix: Any, right: Any) -> Any:
    a, b, n = matrix.copy(), right.copy(), len(right)
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(a[i, k]) > abs(a[pivot, k]):
                pivot = i
        if pivot != k:
            a[[k, pivot]] = a[[pivot, k]]
            b[[k, pivot]] = b[[pivot, k]]
        for i in range(k + 1, n):
            factor = a[i, k] / a[k, k]
            a[i, k:] -= factor * a[k, k:]
            b[i] -= factor * b[k]
    x = np.zeros(n)
    for i in range(n - 1, -1, -1):
        x[i] = (b[i] - a[i, i + 1 :] @ x[i + 1 :]) / a[i, i]
    return np.sum(x * x)


RNG = np.random.default_rng(0)
CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (newton, [(2.0,), (0.25,), (1e6,)]),
    (first_above, [(np.array([1.0, 1.5, 3.0, 4.0]), 2.0), (np.array([1.0, 1.5, 1.75, 0.5]), 2.0)]),
    (sweeps, [(np.array([0.0, 1.0, 5.0, 2.0, 8.0, 1.0]),)]),
    (adaptive, [(1.0, 1.3e-4), (2.0, 1.1e-3)]),
    (mean_of_positive, [(np.array([1.0, -2.0, 3.0, 0.5]),), (np.array([-1.0, -2.0, -3.0, -0.5]),)]),
    (eliminated, [(RNG.standard_normal((4, 4)), RNG.standard_normal(4)) for _ in range(2)]),
]


@pytest.mark.parametrize(("function", "calls"), CASES)
def test_values_and_gradients(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    compiled, slope = rolled(function), pb.grad(rolled(function))
    compiled(*calls[0])
    first = compiled.cache_info()  # type: ignore[attr-defined]
    for arguments in calls:
        np.testing.assert_allclose(compiled(*arguments), function(*arguments), rtol=1e-13)
        x, *rest = arguments
        step = 1e-6 * RNG.standard_normal(np.shape(x))
        difference = function(x + step, *rest) - function(x - step, *rest)
        np.testing.assert_allclose(2 * np.sum(slope(*arguments) * step), difference, rtol=1e-5, atol=1e-13)
    info = compiled.cache_info()  # type: ignore[attr-defined]
    assert (info.templates_built, info.compiles) == (1, first.compiles)


def test_one_program_serves_all_trip_counts() -> None:
    compiled = rolled(bisect)
    assert [compiled(0.0, b) for b in (2.0, 3.0, 1000.0)] == [bisect(0.0, b) for b in (2.0, 3.0, 1000.0)]
    assert compiled(2.0, 1.0) == 2.0
    assert compiled.cache_info().compiles == 1  # type: ignore[attr-defined]


def test_the_trace_does_not_grow_with_the_trip_count() -> None:
    def states(x: Any, count: int) -> Any:
        s = np.zeros(3)
        for i in range(count):
            s = 0.5 * s + np.sin(x * i)
        return s

    register()

    def size(count: int) -> int:
        return sum(1 for _ in walk(trace(states, (np.ones(3), count), rolls=True).function.body))

    assert size(100_000) == size(10_000) < 60
    x = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(rolled(states)(x, 1000), states(x, 1000), rtol=1e-12)


def test_loops_of_traced_bounds() -> None:
    @rolled
    def f(x: Any) -> Any:
        n = np.sum(x > 0)
        total = 0.0
        for i in range(n):
            total += x[i]
        for i in range(n, -1, -2):
            total += i
        return total

    for x in (np.array([1.0, 2.0, -3.0, 4.0]), -np.ones(4)):
        n = int(np.sum(x > 0))
        assert f(x) == np.sum(x[:n]) + sum(range(n, -1, -2))


def test_else_runs_unless_the_loop_was_left() -> None:
    @rolled
    def f(x: float) -> Any:
        n = 0
        while n < 10:
            x = x + 1
            n += 1
            if x > 5:
                break
        else:
            x = -x
        return x

    assert [f(v) for v in (0.0, 4.5, -20.0)] == [6.0, 5.5, 10.0]


def test_an_else_leaves_the_loop_around_it() -> None:
    def f(x: Any, level: float) -> Any:
        total = 0.0
        for i in range(4):
            total = total + x[i]
            n = 0
            while n * level < x[i]:
                n += 1
                if n > 3:
                    break
            else:
                if total > level:
                    break
                if total < -level:
                    continue
                if total == level:
                    return -total
            total = total + n
        return total

    compiled = rolled(f)
    for numbers in ((1.0, 2.0, 3.0, 4.0), (5.0, 1.0, 0.5, 0.25), (1.0, -8.0, 9.0, 2.0), (2.5, 1.0, 0.0, 9.0)):
        x = np.array(numbers)
        for level in (1.0, 2.5, 0.25):
            assert compiled(x, level) == f(x, level)


def test_arguments_are_written_as_in_python() -> None:
    @rolled
    def fill(x: Any, level: float) -> Any:
        k = 0
        while x[k] < level and k < 3:
            x[k] = level
            k += 1
        return k

    for level, count in ((0.5, 0), (2.5, 2), (9.0, 3)):
        x = np.array([1.0, 2.0, 3.0, 4.0])
        assert fill(x, level) == count
        assert x.tolist() == [level] * count + [1.0, 2.0, 3.0, 4.0][count:]


def test_zipped_enumerated_and_reversed_rows() -> None:
    def f(x: Any, y: Any) -> Any:
        total = 0.0
        for k, (a, b) in enumerate(zip(x, y), 1):
            if a > b:
                break
            total += k * a
        for a in reversed(x):
            if a < 2:
                break
            total -= a
        return total

    compiled = rolled(f)
    for _ in range(3):
        x, y = RNG.integers(0, 5, 6) * 1.0, RNG.integers(0, 9, 6) * 1.0
        assert compiled(x, y) == f(x, y)


def test_ranges_outside_of_loops_are_pythons() -> None:
    def f(x: Any) -> Any:
        total = 0.0
        for i in [*range(3), *reversed(range(2))]:
            total += x[i] if x[i] > 0 else i
        for i, name in zip(range(3), ("a", "b", "c")):
            total += len(name) * x[i]
        return total + sum(range(4)) + len(range(5))

    x = np.array([1.0, -2.0, 3.0])
    assert rolled(f)(x) == f(x)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: _one_array(x), "is written under one name and used under another"),
        (lambda x: _appended(x), "a list of a number of elements that values decide"),
        (lambda x: _written_after_no_iteration(x), "is written under one name and used under another"),
    ],
)
def test_what_cannot_be_rolled_says_why(function: Callable[..., Any], reason: str) -> None:
    with pytest.raises(pb.TraceError, match="a Python branch") as caught:
        pb.jit(function, loops="roll", guards=False)(np.ones(3))
    assert reason in str(caught.value)


def _swapped(x: Any) -> Any:
    a, b = x, x.copy()
    while a[0] < 10:
        b[1:] = a[1:] + 1
        b[0] = a[0] + 1
        a, b = b, a
    return a


def test_exchanged_arguments_are_written() -> None:
    for x in (np.ones(3), np.full(3, 20.0)):
        own, other = x.copy(), x.copy()
        assert np.array_equal(pb.jit(_swapped, loops="roll", guards=False)(own), _swapped(other))
        assert np.array_equal(own, other)


def _one_array(x: Any) -> Any:
    a, b = x, x.copy()
    while a[0] < 10:
        b[0] = a[0] + 1
        a = b
        a[1] = b[0]
    return a, b


def _written_after_no_iteration(x: Any) -> Any:
    while x[1] < 0:
        x = 2 * x
    x[0] = 5.0
    return x


def _appended(x: Any) -> Any:
    out = []
    total = x[0]
    while total < 10:
        total = total + 1
        out.append(total)
    return frozenset(out)


def test_higher_orders_and_batches() -> None:
    second = pb.grad(pb.grad(rolled(newton)))
    np.testing.assert_allclose(second(2.0), -0.25 * 2**-1.5, rtol=1e-6)
    x = np.array([0.5, 2.0, 9.0])
    np.testing.assert_allclose(pb.vmap(rolled(newton))(x), np.sqrt(x), rtol=1e-14)
    np.testing.assert_allclose(pb.vmap(pb.grad(rolled(newton)))(x), 0.5 / np.sqrt(x), rtol=1e-12)
    _, tangent = pb.jvp(rolled(newton), (2.0,), (1.0,))
    np.testing.assert_allclose(tangent, 0.5 / np.sqrt(2.0), rtol=1e-12)


def test_nested_loops_that_exchange_floats_compile() -> None:
    def escapes(a: Any, n: Any) -> Any:
        total = 0
        for i in range(n):
            x, y, k = 0.0, 0.0, 0
            while x * x + y * y < 4.0 and k < 50:
                x, y = x * x - y * y + a + i * 0.001, 2 * x * y + 0.3
                k += 1
            total += k
        return total

    compiled = pb.jit(escapes, loops="roll")
    for n in (0, 1, 30):
        assert compiled(-1.0, np.int64(n)) == escapes(-1.0, n)


def counted_sum(x: Any) -> Any:
    s, i = 0.0, 0
    while i < len(x):
        s += x[i] * x[i]
        i += 1
    return s


def counted_down(x: Any) -> Any:
    y = x.copy()
    k = len(x) - 1
    while k > 0:
        y[k - 1] = y[k] * 0.5 + y[k - 1]
        k -= 2 if k % 3 == 0 and k > 1 else 1
    return (y * y).sum()


def skips_itself(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j and j > 1:
                d = x[i] - x[j]
                s += d * d
    return s


@pytest.mark.parametrize("function", [counted_sum, counted_down, skips_itself])
def test_long_loops_with_decided_ends_are_rolled(function: Callable[..., Any]) -> None:
    """A ``while`` loop with a counter, and a loop whose first iterations compute nothing."""
    x = np.random.default_rng(0).normal(size=60)
    compiled = pb.jit(function, guards=False)
    names = [i.op.name for i in walk(trace(pb.jit(function), (x,)).function.body)]
    assert len(names) < 150, len(names)
    np.testing.assert_allclose(compiled(x), function(x), rtol=1e-12)
    gradient = pb.grad(compiled)(x)
    slopes = [(function(x + d) - function(x - d)) / 2e-6 for d in 1e-6 * np.eye(60)]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-5, atol=1e-7)
    for n in (0, 1, 2, 3, 5):
        np.testing.assert_allclose(pb.jit(function)(x[:n]), function(x[:n]), rtol=1e-12)


def cholesky(a: Any) -> Any:
    n, c = a.shape[0], np.zeros_like(a)
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= c[i, k] * c[j, k]
            if i == j:
                c[i, j] = np.sqrt(s)
            else:
                c[i, j] = s / c[j, j]
    return c


def totals_of_prefixes(x: Any) -> Any:
    total, largest = 0.0, 0.0
    for i in range(1, len(x)):
        inner = 0.0
        for j in range(i):
            inner = inner + x[j] * x[i]
        total = total + np.sin(inner)
        largest = max(largest, inner)
    return total, largest


@pytest.mark.parametrize(
    ("function", "n"), [(cholesky, 8), (cholesky, 20), (cholesky, 40), (totals_of_prefixes, 20), (totals_of_prefixes, 40)]
)
def test_nests_whose_first_iterations_are_short_are_rolled(function: Callable[..., Any], n: int) -> None:
    m = np.random.default_rng(0).normal(size=(n, n))
    x = m @ m.T + n * np.eye(n) if function is cholesky else m[0]
    compiled = pb.jit(function)
    assert np.allclose(compiled(x), function(x), rtol=1e-12)
    loops = [s.how for s in compiled.explain(x).statements if s.kind == "loop"]
    assert sum(how.startswith("rolled") for how in loops) >= 2, loops


def test_while_loops_whose_first_iteration_has_other_types_roll() -> None:
    def reservoirs(x: Any) -> Any:
        t, level, tanks, out = 0, 0, [0, 0, 0], []
        while t <= len(x) - 1:
            level = 0.9 * level + x[t]
            inflow = level * 0.5
            for i in range(3):
                tanks[i] = tanks[i] * 0.3 + inflow * 0.2
                inflow = tanks[i]
            out.append(inflow + np.sin(level))
            t = t + 1
        return out, level, tanks

    x = np.linspace(0.5, 2, 80)
    compiled = pb.jit(reservoirs, guards=False)
    ours, theirs = compiled(x), reservoirs(x)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13)
    assert [type(v) for v in ours[2]] == [type(v) for v in theirs[2]]
    assert compiled.explain(x).statements[0].how == "rolled: values decide when it ends"


def test_loops_over_other_names_of_range_are_rolled() -> None:
    prange = range

    def banded(x: Any, ends: Any) -> Any:
        total = 0.0
        for i in prange(len(x)):
            for j in prange(ends[0, i], ends[1, i]):
                total += (x[i] - x[j]) ** 2
        return total

    i = np.arange(60)
    x, ends = np.sin(i), np.stack([np.maximum(i - 4, 0), np.minimum(i + 5, 60)])
    compiled = pb.jit(banded, guards=False)
    np.testing.assert_allclose(compiled(x, ends), banded(x, ends), rtol=1e-13)
    assert "rolled: as many iterations as values decide" in str(compiled.explain(x, ends).statements)
