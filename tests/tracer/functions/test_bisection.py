"""The module bisect on traced lists and arrays: positions are Python's."""

from __future__ import annotations

import bisect
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

SORTED = np.sort(np.random.default_rng(0).integers(0, 9, 40)).astype(float)


def positions(a: Any, x: Any) -> Any:
    return (
        bisect_left(a, x), bisect_right(a, x), bisect.bisect(a, x), bisect_left(a, x, 2), bisect_left(a, x, lo=30),
        bisect_right(a, x, 0, 5), bisect_right(a, x, hi=7), bisect_left(a, x, 9, 4),
    )  # fmt: skip


@pytest.mark.parametrize("x", [3.0, 2.5, -1.0, 99.0, float("nan")])
@pytest.mark.parametrize("kind", [np.asarray, np.ndarray.tolist, lambda a: tuple(a.tolist())])
def test_positions(kind: Callable[..., Any], x: float) -> None:
    a = kind(SORTED)
    result = pb.jit(positions, guards=False)(a, x)
    assert result == positions(a, x)
    assert {type(k) for k in result} == {int}


def test_integers_and_a_key() -> None:
    a = SORTED.astype(int)
    assert pb.jit(positions)(a, np.int64(4)) == positions(a, np.int64(4))
    assert pb.jit(lambda x: bisect_left([3, 2, 1], 2, key=lambda v: -v) + x)(1.0) == 4.0


def interpolated(t: Any, xs: Any, ys: Any) -> Any:
    i = bisect_right(xs, t) - 1
    if i < 0:
        i = 0
    if i > len(xs) - 2:
        i = len(xs) - 2
    w = (t - xs[i]) / (xs[i + 1] - xs[i])
    return (1 - w) * ys[i] + w * ys[i + 1]


def test_gradient_of_an_interpolation() -> None:
    xs = [float(k) for k in range(20)]
    ys = [k * k for k in xs]
    for t in (3.3, -2.5, 33.3):
        slope = interpolated(t + 0.25, xs, ys) - interpolated(t - 0.25, xs, ys)
        assert pb.jit(pb.grad(interpolated), guards=False)(t, xs, ys) == pytest.approx(2 * slope, rel=1e-12)


def in_a_loop(xs: Any) -> Any:
    edges, out = [-1.0, -0.5, 0.0, 0.5, 1.0], []
    for x in xs:
        out.append(bisect_left(edges, x))
    return np.array(out)


def inserted(xs: Any) -> Any:
    out: list[Any] = []
    for x in xs:
        insort(out, x)
        if len(out) > 5:
            out.pop(0)
    return np.array(out)


def of_a_part(xs: Any) -> Any:
    values = np.sort(xs[xs > 0])
    return bisect_left(values, 0.5), bisect_right(values, 0.5)


def of_a_grown_list(xs: Any) -> Any:
    total, sums = 0.0, []
    for x in xs:
        if x > 0:
            total += x
            sums.append(total)
    return bisect_left(sums, total / 2), sums


@pytest.mark.parametrize("program", [in_a_loop, inserted, of_a_part, of_a_grown_list])
def test_loops(program: Callable[..., Any]) -> None:
    for seed in range(3):
        xs = np.random.default_rng(seed).normal(size=70)
        expected, result = program(xs.copy()), pb.jit(program, guards=False)(xs)
        for e, r in zip(expected, result, strict=True):
            np.testing.assert_array_equal(r, e)


def test_a_negative_bound() -> None:
    with pytest.raises(ValueError, match="lo must be non-negative"):
        pb.jit(lambda a, lo: bisect_left(a, 1.0, lo))(SORTED, np.int64(-1))
