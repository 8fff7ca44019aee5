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


PROGRAMS = [
    none_or_a_part, none_or_several, empty_or_a_part, two_selections, replaced_if_empty, shortened_again, bound_in_one_iteration,
    replaced_in_iterations, rows, fixed_lengths, dict_of_one_path, number_or_a_part, nested, unbound,
]  # fmt: skip
INSIDE = [bound_in_one_iteration, replaced_in_iterations, nested]
"""Programs whose branches are inside other blocks: they are followed by guards."""
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
    compiled = pb.jit(program, guards=None if program in INSIDE else False)
    for x in INPUTS:
        with warnings.catch_warnings(action="ignore", category=pb.RetraceWarning):
            expected, result = outcome(program, x), outcome(compiled, x)
        assert (expected is None, isinstance(expected, str)) == (result is None, isinstance(result, str))
        if isinstance(expected, dict):
            assert list(expected) == list(result)
        for e, r in zip(parts(expected), parts(result), strict=True):
            assert np.shape(e) == np.shape(r)
            np.testing.assert_allclose(r, e, rtol=1e-14)


SMOOTH = [none_or_a_part, empty_or_a_part, two_selections, replaced_if_empty, shortened_again, rows, fixed_lengths]


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
