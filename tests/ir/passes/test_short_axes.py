"""Arrays whose components a program extracts or assembles are split into these components, in loops as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.core.structure import walk
from pullback.ir.passes import pipeline
from pullback.ir.passes.size_classes import templated
from pullback.programs.pipeline import split_outcomes
from pullback.tracer import trace

STEPS, H = 3, 0.02


def stacked(y: Any) -> Any:
    return np.stack([10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1], y[0] * y[1] - 2.5 * y[2]])


def unpacked(y: Any) -> Any:
    a, b, c = y
    return np.array([10 * (b - a), a * (28 - c) - b, a * b - 2.5 * c])


def pieces(y: Any) -> Any:
    return np.hstack([10 * (y[1:2] - y[0:1]), y[0:1] * (28 - y[2:]) - y[1:2], y[0:1] * y[1:2] - 2.5 * y[2:]])


def written(y: Any) -> Any:
    d = np.empty_like(y)
    d[0], d[1] = 10 * (y[1] - y[0]), y[0] * (28 - y[2]) - y[1]
    d[-1] = y[0] * y[1] - 2.5 * y[2]
    return d


def columns(y: Any) -> Any:
    a, b, c = y[..., 0], y[..., 1], y[..., 2]
    return np.stack([10 * (b - a), a * (28 - c) - b, a * b - 2.5 * c], axis=-1)


def rotated(y: Any) -> Any:
    return np.cross(y, np.roll(y, 1)) + np.roll(y[::-1], -1) * np.sum(y)


def bodies(y: Any) -> Any:
    r, v = y[:6].reshape(3, 2), y[6:]
    first, last = r[1] - r[0], r[2] - r[1]
    return np.concatenate([v, first / np.sum(first * first), first - last, last / (1 + np.sum(last * last))])


RIGHT_SIDES: dict[str, tuple[Callable[[Any], Any], tuple[int, ...]]] = {
    "stacked": (stacked, (3,)),
    "unpacked": (unpacked, (3,)),
    "pieces": (pieces, (3,)),
    "written": (written, (3,)),
    "columns": (columns, (5, 3)),
    "rotated": (rotated, (3,)),
    "bodies": (bodies, (12,)),
}


def step(rhs: Callable[[Any], Any], y: Any) -> Any:
    k = rhs(y + H / 2 * rhs(y))
    return y + H * k


def reference(rhs: Callable[[Any], Any], y: Any) -> Any:
    for _ in range(STEPS):
        y = step(rhs, y)
    return y


def counted(rhs: Callable[[Any], Any], y: Any) -> Any:
    return pb.fori_loop(0, STEPS, lambda i, y: step(rhs, y), y)


def scanned(rhs: Callable[[Any], Any], y: Any) -> Any:
    last, rows = pb.scan(lambda y, _: (step(rhs, y), y), y, np.zeros(STEPS))
    return last + 0 * rows.sum(0)


def repeated(rhs: Callable[[Any], Any], y: Any) -> Any:
    return pb.while_loop(lambda s: s[1] < STEPS, lambda s: (step(rhs, s[0]), s[1] + 1), (y, 0))[0]


LOOPS = {"unrolled": reference, "fori_loop": counted, "scan": scanned, "while_loop": repeated}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("name", RIGHT_SIDES)
def test_value_and_gradients(name: str, loop: str) -> None:
    rhs, shape = RIGHT_SIDES[name]
    rng = np.random.default_rng(0)
    y, weights, direction = (rng.normal(size=shape) for _ in range(3))

    def loss(y: Any) -> Any:
        return np.sum(weights * np.sin(LOOPS[loop](rhs, y)))

    def expected(y: Any) -> Any:
        return np.sum(weights * np.sin(reference(rhs, y)))

    np.testing.assert_allclose(pb.jit(lambda y: LOOPS[loop](rhs, y))(y), reference(rhs, y), rtol=1e-12)
    gradient = pb.jit(pb.grad(loss))
    numeric = (expected(y + 1e-6 * direction) - expected(y - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(np.sum(gradient(y) * direction), numeric, rtol=1e-6, atol=1e-7)
    curvature = pb.jit(pb.grad(lambda y: np.sum(pb.grad(loss)(y) * direction)))(y)
    difference = (gradient(y + 1e-6 * direction) - gradient(y - 1e-6 * direction)) / 2e-6
    np.testing.assert_allclose(curvature, difference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["f4", "c8", "c16", "i4"])
@pytest.mark.parametrize("name", ["stacked", "written", "rotated"])
def test_dtypes(name: str, dtype: str) -> None:
    rhs, shape = RIGHT_SIDES[name]
    y = (np.arange(1, 4) * (1 + (0.5j if dtype.startswith("c") else 0))).astype(dtype).reshape(shape)

    def turn(y: Any) -> Any:
        return (rhs(y) * 3 + y).astype(y.dtype)

    actual = pb.jit(lambda y: pb.fori_loop(0, 2, lambda i, y: turn(y), y))(y)
    expected = turn(turn(y))
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["stacked", "unpacked", "pieces", "written", "bodies"])
def test_loops_carry_scalars(name: str) -> None:
    rhs, shape = RIGHT_SIDES[name]
    traced = trace(lambda y, n: pb.fori_loop(0, n, lambda i, y: step(rhs, y), y), (np.ones(shape), 5))
    function = pipeline.run(templated(split_outcomes(traced)[0]).function, [*pipeline.BEFORE_GRAD, *pipeline.OPTIMIZE])
    (loop,) = [i for i in function.instructions if i.regions]
    assert loop.params["carried"] == shape[0]
    assert all(not v.type.shape for i in walk(loop.regions[0]) for v in i.results)
