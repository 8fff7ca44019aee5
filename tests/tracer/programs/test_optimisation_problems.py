"""Tests of classes of test problems of optimisation: values, derivatives, and what calls leave in the objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.support.api import traces
from tests.tracer.programs.optimisation_problems import PROBLEMS

MOST_TRACES = 6
"""Calls after which no problem is traced again: the first ones change the types of attributes, and take the paths of a branch."""


def points(problem: Any, count: int, seed: int = 0) -> list[Any]:
    """Return random points within the bounds. The first three are each better than the one before, the fourth is the first."""
    rng = np.random.default_rng([seed, problem.dimension])
    low, high = np.array(problem.bounds).T
    drawn = [rng.uniform(low, high) for _ in range(count)]
    first = sorted(drawn[:3], key=lambda x: -float(problem.evaluate(x)))
    return [*first, first[0].copy(), *drawn[4:]]


def close(a: Any, b: Any, size: float = 0.0) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * (1 + size))


def differences(f: Any, x: Any, step: float) -> Any:
    """Return central differences of fourth order."""
    h = step * np.maximum(1e-1, np.minimum(1.0, np.abs(x)))
    rows = [np.eye(len(x))[k] * h[k] for k in range(len(x))]
    return np.array([(8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / (12 * e.sum()) for e in rows])


def same_state(mine: Any, plain: Any) -> None:
    assert mine.calls == plain.calls and type(mine.calls) is int
    assert type(mine.best) is type(plain.best) and all(type(v) is float for v in mine.history)
    close(mine.history, plain.history)
    close(mine.best, plain.best)
    assert mine.best_x is plain.best_x


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("has_gradient", [False, True])
def test_calls_count_and_keep_the_best(kind: Any, has_gradient: bool) -> None:
    mine, plain = kind(), kind()
    compiled = pb.value_and_grad(mine) if has_gradient else pb.jit(mine)
    before = 0
    for k, x in enumerate(points(plain, 2 * MOST_TRACES)):
        result, expected = compiled(x), plain(x)
        value, gradient = result if has_gradient else (result, None)
        assert has_gradient or type(value) is type(expected)
        close(value, expected)
        same_state(mine, plain)
        if gradient is not None and k < 3:
            size = float(np.max(np.abs(gradient)))
            np.testing.assert_allclose(gradient, differences(plain.evaluate, x, plain.step), rtol=2e-5, atol=1e-6 * (1 + size))
        if k == MOST_TRACES:
            before = traces()
        assert k <= MOST_TRACES or traces() == before


@pytest.mark.parametrize("kind", PROBLEMS)
def test_second_derivatives_and_rows(kind: Any) -> None:
    p = kind()
    xs = np.array(points(p, 4, seed=1))
    gradient, hessian = pb.grad(p.evaluate), pb.hessian(p.evaluate)
    rows = pb.jit(pb.vmap(p.evaluate))
    for x in xs[:2]:
        expected = differences(gradient, x, p.step)
        size = float(np.max(np.abs(expected)))
        np.testing.assert_allclose(hessian(x), expected, rtol=1e-4, atol=1e-6 * (1 + size))
    close(rows(xs), [p.evaluate(x) for x in xs])
    before = traces()
    close(rows(xs[::-1].copy()), [p.evaluate(x) for x in xs[::-1]])
    hessian(xs[2])
    assert traces() == before
    assert p.calls == 0
