"""Pairs: every point with every other, by broadcasting, and sums over either of them, nothing of their size stored."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.programs.pipeline import template_counts

COUNTS = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 129, 200)


def potential(x: Any, m: Any, eps: Any) -> Any:
    d = x[:, None, :] - x[None, :, :]
    r2 = np.sum(d * d, axis=-1) + eps
    return -0.5 * np.sum(m[:, None] * m[None, :] / np.sqrt(r2))


def rbf(x: Any, y: Any) -> Any:
    d = x[:, None, :] - y[None, :, :]
    with np.errstate(over="ignore"):
        return np.exp(-np.sum(d * d, axis=-1))


def kernel_mean(x: Any, y: Any, w: Any) -> Any:
    return np.sum(w * np.mean(rbf(x, y), axis=1))


def nearest(x: Any, y: Any) -> Any:
    return np.sum(np.min(np.linalg.norm(x[:, None] - y[None], axis=-1), axis=1))


def chebyshev(x: Any, y: Any) -> Any:
    return np.sum(np.max(np.abs(x[:, None] - y[None]), axis=-1) ** 2)


def by_component(x: Any, y: Any) -> Any:
    dx = x[:, 0][:, None] - y[:, 0][None]
    dy = x[:, 1][:, None] - y[:, 1][None]
    return np.sum(1 / (1 + dx * dx + dy * dy))


def outer(a: Any, b: Any) -> Any:
    z = np.tanh(a[:, None] * b[None, :])
    return np.sum(np.sum(z, axis=0) ** 2) + np.sum(np.sin(np.sum(z, axis=1)))


def off_diagonal(x: Any) -> Any:
    d = x[:, None, :] - x[None, :, :]
    r2 = np.where(np.eye(len(x), dtype=bool), 1.0, np.sum(d * d, axis=-1))
    return np.sum(np.where(np.eye(len(x), dtype=bool), 0.0, 1 / r2))


def soft_assignment(x: Any, y: Any) -> Any:
    s = -np.sum((x[:, None] - y[None]) ** 2, axis=-1)
    e = np.exp(s - np.max(s, axis=1, keepdims=True))
    p = e / np.sum(e, axis=1, keepdims=True)
    return np.sum(np.sum(p, axis=0) ** 2)


def points(count: int, d: int, dtype: Any = np.float64, seed: int = 0) -> Any:
    return np.random.default_rng(seed + 31 * count + d).normal(size=(count, d)).astype(dtype)


def numeric(f: Callable[..., Any], arguments: list[Any], k: int) -> Any:
    """The gradient of f by argument k, by central differences."""
    result = np.zeros_like(arguments[k])
    for position in np.ndindex(result.shape):
        ends = []
        for step in (1e-5, -1e-5):
            moved = [a.copy() for a in arguments]
            moved[k][position] += step
            ends.append(f(*moved))
        result[position] = (ends[0] - ends[1]) / 2e-5
    return result


def forces(x: Any, m: Any, eps: Any) -> Any:
    """The gradient of ``potential`` by hand."""
    d = x[:, None, :] - x[None, :, :]
    r2 = (d * d).sum(-1) + eps
    return (m[:, None] * m[None, :] / (r2 * np.sqrt(r2)))[..., None] * d


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", COUNTS)
def test_potential_and_forces(n: int, dtype: Any) -> None:
    x, m = points(n, 3, dtype), (1 + np.arange(n) % 5).astype(dtype)
    value, gradient = pb.value_and_grad(potential)(x, m, dtype(0.01))
    exact = [a.astype(np.float64) for a in (x, m, np.asarray(dtype(0.01)))]
    close = 1e-13 if dtype is np.float64 else 2e-5
    assert value.dtype == gradient.dtype == dtype
    np.testing.assert_allclose(value, potential(*exact), rtol=close)
    np.testing.assert_allclose(gradient, forces(*exact).sum(1), rtol=close, atol=close * max(n, 1) * 100)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 8, 10, 32, 33])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3), (3, 17), (17, 33)])
def test_kernel_means_and_gradients(n: int, m: int, d: int) -> None:
    x, y, w = points(n, d) / np.sqrt(d), points(m, d) / np.sqrt(d), points(n, 1)[:, 0]
    np.testing.assert_allclose(pb.jit(kernel_mean)(x, y, w), kernel_mean(x, y, w), rtol=1e-13)
    k = rbf(x, y) * w[:, None] / m
    g = -2 * k[..., None] * (x[:, None] - y[None])
    dx, dy, dw = pb.grad(kernel_mean, argnums=(0, 1, 2))(x, y, w)
    np.testing.assert_allclose(dx, g.sum(1), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dy, -g.sum(0), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(dw, rbf(x, y).mean(1), rtol=1e-12)


@pytest.mark.parametrize("f", [nearest, chebyshev, by_component, soft_assignment])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (4, 9), (9, 4)])
def test_other_interactions(f: Callable[..., Any], n: int, m: int) -> None:
    arguments = [points(n, 3), points(m, 3, seed=7)]
    np.testing.assert_allclose(pb.jit(f)(*arguments), f(*arguments), rtol=1e-13)
    for k, result in enumerate(pb.grad(f, argnums=(0, 1))(*arguments)):
        np.testing.assert_allclose(result, numeric(f, arguments, k), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (1, 1), (8, 17), (33, 5)])
def test_outer_combinations(n: int, m: int) -> None:
    a, b = points(n, 1)[:, 0], points(m, 1, seed=5)[:, 0]
    np.testing.assert_allclose(pb.jit(outer)(a, b), outer(a, b), rtol=1e-13)
    for k, result in enumerate(pb.grad(outer, argnums=(0, 1))(a, b)):
        np.testing.assert_allclose(result, numeric(outer, [a, b], k), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("n", [1, 2, 9, 20])
def test_without_the_diagonal(n: int) -> None:
    x = points(n, 2)
    np.testing.assert_allclose(pb.jit(off_diagonal)(x), off_diagonal(x), rtol=1e-13)
    np.testing.assert_allclose(pb.grad(off_diagonal)(x), numeric(off_diagonal, [x], 0), rtol=1e-4, atol=1e-6)


def test_second_derivatives() -> None:
    x, m = points(5, 2), np.arange(1.0, 6)
    along = points(5, 2, seed=9)
    result = pb.grad(lambda x: np.sum(pb.grad(potential)(x, m, 0.1) * along))(x)
    ends = [pb.grad(potential)(x + s * along, m, 0.1) for s in (1e-5, -1e-5)]
    np.testing.assert_allclose(result, (ends[0] - ends[1]) / 2e-5, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200, 5e-324])
def test_special_values_meet_their_own_pairs_alone(bad: float) -> None:
    x, y = points(20, 3), points(11, 3, seed=3)
    x[4, 1] = bad
    result, expected = pb.jit(lambda x, y: np.sum(rbf(x, y), axis=1))(x, y), np.sum(rbf(x, y), axis=1)
    np.testing.assert_allclose(result, expected, rtol=1e-13)
    m = np.ones(20)
    with np.errstate(all="ignore"):
        expected_forces = forces(x, m, 0.1).sum(1)
    np.testing.assert_array_equal(np.isnan(pb.grad(potential)(x, m, 0.1)), np.isnan(expected_forces))


def test_any_layout() -> None:
    x, y = points(12, 3), points(9, 3, seed=3)
    w = points(12, 1)[:, 0]
    expected = pb.grad(kernel_mean)(x, y, w)
    wide = np.zeros((24, 6))
    wide[::2, ::2] = x
    for same in (np.asfortranarray(x), wide[::2, ::2], x[::-1].copy()[::-1]):
        np.testing.assert_array_equal(pb.grad(kernel_mean)(same, np.asfortranarray(y), w), expected)


def test_columns_that_rows_repeat_are_put_side_by_side() -> None:
    def f(x: Any, y: Any, at: Any) -> Any:
        z = np.sin(x) * 2
        a = z[:, 0]
        first = np.sum(np.tanh(a[:, None] - y[::2][None]))
        second = np.sum(np.tanh(y[:, None] * z.T[1][None]))
        picked = np.sum(np.cos(y[:, None] * z[at, 1][None]), axis=1)
        turned = np.sum(np.cos(y[:, None] * np.flip(z[:, 0])[None]), axis=1)
        return first + second + np.sum(picked * turned) + np.sum(a), a, z[:, 0][::2]

    x, y, at = points(11, 3), points(11, 1)[:, 0], np.array([3, 0, 10, 3, 7])
    for result, expected in zip(pb.jit(f)(x, y, at), f(x, y, at), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-13)
    for k, result in enumerate(pb.grad(lambda x, y: f(x, y, at)[0], argnums=(0, 1))(x, y)):
        np.testing.assert_allclose(result, numeric(lambda x, y: f(x, y, at)[0], [x, y], k), rtol=1e-6, atol=1e-8)
    text = pb.jit(lambda x: np.sum(np.exp(x[:, 0][:, None] * x[:, 1][None]))).stages(x)["fuse"]
    assert text.count("= group") == 2


def test_new_sizes_of_a_class_build_nothing() -> None:
    f = pb.jit(pb.value_and_grad(lambda x, m: potential(x, m, 0.125)))
    f(points(5, 3), np.ones(5))
    before = template_counts().built
    for n in (2, 6, 40):
        f(points(n, 3), np.ones(n))
    assert template_counts().built == before
    f(points(5, 2), np.ones(5))
    assert template_counts().built == before + 1
    f(points(9, 2), np.ones(9))
    assert template_counts().built == before + 1


def test_longer_axes_are_one_class() -> None:
    f = pb.jit(lambda x, y: np.sum(np.abs(x[:, None] - y[None])))
    f(points(5, 33), points(4, 33))
    before = template_counts().built
    for d in (34, 40, 100):
        x, y = points(5, d), points(4, d)
        np.testing.assert_allclose(f(x, y), np.sum(np.abs(x[:, None] - y[None])), rtol=1e-13)
    assert template_counts().built == before


@pytest.mark.parametrize(
    ("f", "arguments"),
    [
        (potential, [points(300, 3), np.ones(300), 0.1]),
        (kernel_mean, [points(300, 2), points(280, 2), np.ones(300)]),
        (kernel_mean, [points(300, 1), points(280, 1), np.ones(300)]),
        (nearest, [points(300, 2), points(280, 2)]),
        (by_component, [points(300, 2), points(280, 2)]),
        (off_diagonal, [points(300, 3)]),
        (outer, [points(300, 1)[:, 0], points(280, 1)[:, 0]]),
    ],
)
def test_nothing_of_the_size_of_the_pairs_is_stored(f: Callable[..., Any], arguments: list[Any]) -> None:
    text = pb.jit(pb.value_and_grad(f)).stages(*arguments)["lower"]
    shapes = re.findall(r": &\w+\[([\d,]*)\] = alloc", text)
    assert max(math.prod(int(e) for e in shape.split(",") if e) for shape in shapes) <= 300 * 16
