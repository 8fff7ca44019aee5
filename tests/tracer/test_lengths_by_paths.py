"""Arrays of several lengths, and of lengths that values decide, on the paths of branches, and in iterations."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def none_or_a_part(x: Any) -> Any:
    i = np.nonzero(x > 0.5)[0]
    if i.shape[0] == 0:
        return None
    return x[i[0] : i[-1] + 1] * 2


def none_or_several(x: Any) -> Any:
    i = np.flatnonzero(x > 0.5)
    if len(i) == 0:
        return None
    return i[0], x[i], x[i[0] : i[-1] + 1]


def empty_or_a_part(x: Any) -> Any:
    if np.sum(x) < 1:
        return np.zeros(0)
    return x[x > 0.3]


def two_selections(x: Any) -> Any:
    return x[x > 0.3] * 2 if x[0] > 0.3 else x[x < 0.3]


def replaced_if_empty(x: Any) -> Any:
    y = x[x > 0.8]
    if len(y) == 0:
        y = np.array([x[0], x[1]])
    return np.sum(y * y), y


def shortened_again(x: Any) -> Any:
    y = x[x > 0]
    if len(y) > 3:
        y = y[:-1] * 2
        y[0] = 7.0
    return np.concatenate([y, x[:2]])


def bound_in_one_iteration(x: Any) -> Any:
    y = None
    for k in range(len(x)):
        if x[k] > 0.5:
            y = x[k:] * 3
            break
    return y


def replaced_in_iterations(x: Any) -> Any:
    y = x * 1
    for k in range(80):
        if x[k % 9] > 0.5:
            y = x[x > 0.1 * (k % 5)] * k
    return y


def rows(x: Any) -> Any:
    a = x.reshape(3, 3)
    b = a[a[:, 0] > 0] if x[1] > 0 else a[1:] + 1
    return np.sum(b, axis=0), b


def fixed_lengths(x: Any) -> Any:
    return x[1:] if x[4] > 0 else x * 2


def dict_of_one_path(x: Any) -> Any:
    selected: dict[str, Any] = {}
    if np.any(x > 0.5):
        selected = {"x": x[x > 0.5]}
    return selected


def number_or_a_part(x: Any) -> Any:
    y: Any = 0.0
    if np.any(x > 0.5):
        y = x[x > 0.5]
    return y


def nested(x: Any) -> Any:
    if x[0] > 0:
        y = x[x > 0] if x[1] > 0 else x[2:]
    elif x[1] > 0:
        y = x[:1]
    else:
        y = np.zeros(0)
    return np.sum(np.sin(y)), len(y)


def unbound(x: Any) -> Any:
    if x[0] > 0:
        y = x[x > 0]
    return y * 2


def columns_or_fewer(x: Any) -> Any:
    y = x[:8].reshape(2, 4) * 1.5
    if x[0] > 0:
        y = y[:, ::2]
        y[0, 1] = x[2]
    return y, y.shape[1]


def columns_by_value(x: Any) -> Any:
    y = np.stack([x, x * x])
    z = y[:, x > 0.3] if x[1] > 0 else np.ones((2, 0))
    return np.hstack([z, y[:, :1]])


PROGRAMS = [
    none_or_a_part, none_or_several, empty_or_a_part, two_selections, replaced_if_empty, shortened_again, bound_in_one_iteration,
    replaced_in_iterations, rows, fixed_lengths, dict_of_one_path, number_or_a_part, nested, unbound,
    columns_or_fewer, columns_by_value,
]  # fmt: skip
INPUTS = [
    np.array([0.55, 1.25, -0.75, 0.35, 0.9, -0.2, 0.15, 0.7, 0.45]),
    np.array([-0.55, 0.25, 0.75, -0.35, 0.2, 0.6, -0.15, 0.85, 0.4]),
    np.array([0.35, -0.25, 0.05, -0.45, -0.2, 0.25, -0.15, 0.05, 0.4]),
    np.array([-0.35, -0.25, -0.05, -0.45, -0.2, -0.25, -0.15, -0.05, -0.4]),
]


def outcome(function: Callable[..., Any], x: Any) -> Any:
    """Return what a function returns, or the exception that it raises."""
    try:
        return function(x.copy())
    except pb.TraceError:
        raise
    except UnboundLocalError as error:
        return str(error)


def parts(result: Any) -> list[Any]:
    """Return the arrays and numbers in a result."""
    if isinstance(result, dict):
        result = tuple(result.values())
    if isinstance(result, tuple):
        return [y for x in result for y in parts(x)]
    return [] if result is None or isinstance(result, str) else [result]


@pytest.mark.parametrize("program", PROGRAMS)
def test_values(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program, guards=False)
    for x in INPUTS:
        with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
            expected, result = outcome(program, x), outcome(compiled, x)
        assert (expected is None, isinstance(expected, str)) == (result is None, isinstance(result, str))
        if isinstance(expected, dict):
            assert list(expected) == list(result)
        for e, r in zip(parts(expected), parts(result), strict=True):
            assert np.shape(e) == np.shape(r)
            np.testing.assert_allclose(r, e, rtol=1e-14)


SMOOTH = [
    none_or_a_part, empty_or_a_part, two_selections, replaced_if_empty, shortened_again, rows, fixed_lengths, columns_or_fewer,
    columns_by_value,
]  # fmt: skip


@pytest.mark.parametrize("program", SMOOTH)
def test_gradients(program: Callable[..., Any]) -> None:
    def total(x: Any) -> Any:
        result = program(x)
        if result is None:
            return 0.5 * np.sum(x)
        own = result if isinstance(result, tuple) else (result,)
        return sum(np.sum(part**2) * (k + 0.5) for k, part in enumerate(own))

    rng = np.random.default_rng(2)
    slope = pb.jit(pb.grad(total), guards=False)
    for x in INPUTS:
        step = 1e-6 * rng.standard_normal(len(x))
        difference = (total(x + step) - total(x - step)) / 2
        np.testing.assert_allclose(np.sum(slope(x) * step), difference, rtol=1e-5, atol=1e-11)
        second = pb.grad(lambda x: np.sum(slope(x) * np.arange(1.0, 10.0)))(x)
        change = np.sum((slope(x + step) - slope(x - step)) * np.arange(1.0, 10.0)) / 2
        np.testing.assert_allclose(np.sum(second * step), change, rtol=1e-4, atol=1e-9)


def written_afterwards(x: Any) -> Any:
    y = x if x[4] > 0 else x[x > 0]
    x[0] = 9.0
    return y * 1


def written_under_the_new_name(x: Any) -> Any:
    y = x if x[4] > 0 else x[x > 0]
    y[0] = 9.0
    return y, x * 1


@pytest.mark.parametrize("program", [written_afterwards, written_under_the_new_name])
def test_names_of_one_array(program: Callable[..., Any]) -> None:
    for x in INPUTS[:3]:
        with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
            result = pb.jit(program)(x.copy())
        for e, r in zip(parts(program(x.copy())), parts(result), strict=True):
            np.testing.assert_array_equal(r, e)
    with pytest.raises(pb.TraceError):
        pb.jit(program, guards=False)(INPUTS[0].copy())


def test_a_length_without_a_bound_is_refused() -> None:
    def program(x: Any) -> Any:
        n = np.sum(x > 0.5) ** 2
        if n == 0:
            return None
        return np.ones(n) * x[0]

    with pytest.raises(pb.TraceError, match="no bound of its length is known"):
        pb.jit(program, guards=False)(INPUTS[0])
    for x in INPUTS:
        expected, result = program(x), pb.jit(program, guards=True)(x)
        assert (expected is None) == (result is None)
        np.testing.assert_array_equal(np.array(result, float), np.array(expected, float))


def appended(x: Any, n: Any) -> Any:
    out = np.array([])
    for i in range(n):
        out = np.append(out, x[i] ** 2)
    return out


def appended_if_positive(x: Any, n: Any) -> Any:
    out = np.array([])
    for i in range(n):
        if x[i] > 0:
            out = np.append(out, x[i] ** 2)
    return out


def two_by_sign(x: Any, n: Any) -> Any:
    low, high = np.array([]), np.array([])
    for v in x[:n]:
        if v > 0:
            high = np.append(high, v)
        else:
            low = np.append(low, v)
    return low.sum(), high * 2, len(low)


def steps_to(x: Any, n: Any) -> Any:
    t, y = np.array([0.0]), np.array([[x[0], x[1]]])
    while t[-1] < n:
        h = 0.25 + abs(np.sin(t[-1]))
        t = np.append(t, t[-1] + h)
        y = np.vstack([y, y[-1] + h * np.array([y[-1, 1], -y[-1, 0]])])
    return t, y


def many_steps(x: Any, n: Any) -> Any:
    t = np.array([x[0]])
    while t[-1] < n:
        t = np.append(t, t[-1] + 0.01)
    return len(t), t.sum()


def unknown_numbers(x: Any, n: Any) -> Any:
    t = np.array([x[0]])
    while True:
        if t[-1] > n:
            break
        if len(t) > 50:
            return t[:3]
        t = np.concatenate([t, x[x > t[-1]][:2], [t[-1] + 1]])
    return t * 2


def written_before(x: Any, n: Any) -> Any:
    t = x[:2].copy()
    while len(t) < n:
        t[0] += 1.0
        t = np.append(t, t[0])
        t[-1] *= 2
    return t


def exchanged(x: Any, n: Any) -> Any:
    a, b = np.array([1.0]), np.array([])
    while len(a) < n:
        a, b = np.append(b, x[0]), np.append(a, x[1])
        if len(b) > 12:
            break
    return a, b


def other_dtype(x: Any, n: Any) -> Any:
    p = np.array([2])
    while len(p) < n:
        p = np.append(p, p[-1] + 0.5 * (x[0] > 0) + 0.5)
    return p


class Path:
    def __init__(self) -> None:
        self.t = np.array([0.0])


def attributes(x: Any, n: Any) -> Any:
    path, ends = Path(), {"u": np.zeros(0)}
    while path.t[-1] < n:
        path.t = np.append(path.t, path.t[-1] + abs(x[0]) + 0.5)
        ends["u"] = np.concatenate([ends["u"], x[:2]])
    return path.t, ends["u"]


def inner_loops(x: Any, n: Any) -> Any:
    out = np.zeros(0)
    for i in range(len(x)):
        v = x[i : i + 1]
        while v[-1] < n and len(v) < 5:
            v = np.append(v, v[-1] * 1.5 + 1)
        out = np.concatenate([out, v])
    return out


def queue(x: Any, n: Any) -> Any:
    y = np.sort(x[:n])
    while len(y) > 1:
        y = np.sort(np.append(y[2:], y[0] + y[1]))
    return y


def roots(x: Any, n: Any) -> Any:
    c = np.array([1.0])
    for r in x[:n]:
        c = np.append(c, 0.0) - r * np.insert(c, 0, 0.0)
    return c


def columns_if_positive(x: Any, n: Any) -> Any:
    columns = np.zeros((3, 0))
    for k in range(len(x) - 2):
        if x[k] > 0:
            columns = np.hstack([columns, x[k : k + 3].reshape(3, 1)])
    return columns


def deleted_and_inserted(x: Any, n: Any) -> Any:
    y = x[:6] * 1.5
    for k in range(len(x)):
        if x[k] > 0.5:
            y = np.insert(y, 1, x[k])
        if x[k] < 0.3:
            y = np.delete(y, 0)
    return y


def columns_until_large(x: Any, n: Any) -> Any:
    basis = x[:3, None] * np.ones((3, 2))
    while basis.shape[1] < n:
        basis = np.c_[basis, np.cos(basis[:, -1] + basis[:, -2])]
    return basis


def middle_axis(x: Any, n: Any) -> Any:
    y = np.ones((2, 1, 2)) * x[0]
    for v in x[:n]:
        y = np.concatenate([y, y[:, -1:] * 0.5 + v], axis=1)
        y[0, 0, 1] += v
    return y


def columns_removed(x: Any, n: Any) -> Any:
    y = np.ones((2, 40)) * np.arange(40.0)
    k = 0
    while y.shape[1] > 3 and k < n:
        y = y[:, :-2] if x[k] > 0 else y[:, 1:] * 0.9
        y[0, 0] += x[k]
        k += 1
    return y


LENGTHENING = [
    appended, appended_if_positive, two_by_sign, steps_to, many_steps, unknown_numbers, written_before, exchanged, other_dtype,
    attributes, inner_loops, queue, roots, columns_if_positive, columns_until_large, middle_axis, columns_removed,
    deleted_and_inserted,
]  # fmt: skip


SECOND = [appended_if_positive, steps_to, written_before, columns_if_positive, columns_until_large]
"""Programs whose second derivatives are compared."""


@pytest.mark.parametrize("program", LENGTHENING)
def test_arrays_that_loops_lengthen(program: Callable[..., Any]) -> None:
    x = np.linspace(-1, 1, 9) + 0.3
    compiled = pb.jit(program, guards=False)
    for n in map(np.int64, (4, 9, 1, 9)):
        y = x.copy()
        result, expected = parts(compiled(y, n)), parts(program(x, n))
        assert list(map(type, result)) == list(map(type, expected))
        for r, e in zip(result, expected, strict=True):
            assert np.shape(r) == np.shape(e)
            np.testing.assert_allclose(r, e, rtol=1e-13)
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("program", LENGTHENING)
def test_gradients_of_arrays_that_loops_lengthen(program: Callable[..., Any]) -> None:
    def loss(x: Any, n: Any) -> Any:
        return sum([np.sum(np.sin(r)) for r in parts(program(x, n))])

    rng, n, e = np.random.default_rng(0), np.int64(7), 1e-6
    x, direction = rng.normal(size=9) + 0.4, rng.normal(size=9)
    gradient = pb.grad(loss)
    slope = (loss(x + e * direction, n) - loss(x - e * direction, n)) / (2 * e)
    np.testing.assert_allclose(gradient(x, n) @ direction, slope, 1e-5, 1e-7)
    np.testing.assert_allclose(pb.jvp(lambda y: loss(y, n), (x,), (direction,))[1], slope, 1e-5, 1e-7)
    if program not in SECOND:
        return
    second = pb.jvp(lambda y: gradient(y, n), (x,), (direction,))[1]
    change = (gradient(x + e * direction, n) - gradient(x - e * direction, n)) / (2 * e)
    np.testing.assert_allclose(second, change, 1e-4, 1e-6)


def test_long_loops_that_lengthen_arrays_roll() -> None:
    x = np.linspace(-1, 1, 300)
    for program in (appended, appended_if_positive, roots):
        compiled = pb.jit(program)
        np.testing.assert_allclose(compiled(x, 300), program(x, 300))
        assert "  rolled" in str(compiled.explain(x, 300))


def a_grown_argument(x: Any, n: Any) -> Any:
    t = x
    while t[-1] < n:
        t = np.append(t, t[-1] + 1.0)
    t[0] = 50.0
    return t


def a_grown_view(x: Any, n: Any) -> Any:
    t = x[:2]
    u = t
    while t[-1] < n:
        t = np.append(t, t[-1] + 1.0)
    u[0] = 7.0
    return t


@pytest.mark.parametrize("program", [a_grown_argument, a_grown_view])
def test_writes_into_arrays_that_a_loop_may_have_lengthened(program: Callable[..., Any]) -> None:
    compiled = pb.jit(program)
    for n in (4, 0, 4):
        x, y = np.linspace(-1, 1, 9), np.linspace(-1, 1, 9)
        with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
            np.testing.assert_array_equal(compiled(x, n), program(y, n))
        np.testing.assert_array_equal(x, y)


def test_an_index_error_in_a_loop_that_lengthens_an_array() -> None:
    def program(x: Any, n: Any) -> Any:
        t = np.array([0.0])
        while t[-1] < n:
            t = np.append(t, x[len(t)] + t[-1])
        return t

    compiled = pb.jit(program, guards=False)
    np.testing.assert_array_equal(compiled(np.ones(9), np.int64(5)), program(np.ones(9), 5))
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 9"):
        compiled(np.ones(9), np.int64(50))


def two_in_one_another(x: Any, n: Any) -> Any:
    t, u = np.array([0.0]), np.array([0.0])
    while t[-1] < n:
        t = np.append(t, t[-1] + 1)
        while u[-1] < 2 * n:
            u = np.append(u, u[-1] + x[0])
    return t, u


def three_in_one_another(x: Any, n: Any) -> Any:
    t, u, v = np.array([0.0]), np.array([0.0]), np.array([0.0])
    while t[-1] < n:
        t = np.append(t, t[-1] + 1)
        while u[-1] < 2 * n:
            u = np.append(u, u[-1] + x[0])
            while v[-1] < 3 * n:
                v = np.append(v, v[-1] + x[1])
    return t, u, v


def three_of_bounded_lengths(x: Any, n: Any) -> Any:
    t, count = x[:2], 0
    while count < n:
        count += 1
        for k in range(3):
            while t[-1] < k:
                t = np.concatenate([t[:2], x[: count % 3], [t[-1] + 1]])[-3:]
    return t


@pytest.mark.long
def test_loops_without_a_bound_in_one_another() -> None:
    x = np.array([1.0, 1.5])
    for program in (two_in_one_another, three_of_bounded_lengths):
        compiled = pb.jit(program, guards=False)
        for n in map(np.int64, (5, 2)):
            for r, e in zip(parts(compiled(x, n)), parts(program(x, n)), strict=True):
                np.testing.assert_array_equal(r, e)
    with pytest.raises(pb.TraceError, match="loops without a bound, one in another"):
        pb.jit(three_in_one_another, guards=False)(x, np.int64(5))
