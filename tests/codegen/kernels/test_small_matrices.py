"""Batches of small matrices, one per lane, against NumPy and large ones: factors, solves, products, and their gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.ops.kernel.small_matrices import MAX_EXTENT, MAX_PRODUCT_EXTENT
from pullback.tracer import flatten, trace
from tests.support.targets import run_targets

Array = Any
BATCHES = ((0,), (1,), (15,), (16,), (17,), (3, 11))
EXTENTS = (0, 1, 2, 5, 8, MAX_PRODUCT_EXTENT, MAX_PRODUCT_EXTENT + 1, MAX_EXTENT, MAX_EXTENT + 1)


def matrices(batch: tuple[int, ...], n: int, dtype: Any, columns: int | None = None) -> Array:
    rng = np.random.default_rng([*batch, n])
    shape = (*batch, n, n if columns is None else columns)
    return (
        rng.normal(size=shape) + (4 * n * np.eye(n) * (rng.random(batch) < 0.5)[..., None, None] if columns is None else 0)
    ).astype(dtype)


def close(result: Array, expected: Array, dtype: Any, factor: float = 1.0) -> None:
    assert (result.shape, result.dtype) == (expected.shape, np.dtype(dtype))
    scale = np.max(np.abs(expected), initial=1e-30)
    np.testing.assert_allclose(result, expected, rtol=0, atol=float(np.finfo(dtype).eps * 64 * factor * scale))


def condition(a: Array) -> float:
    return float(np.max(np.linalg.cond(a.astype(float)), initial=1.0)) if a.shape[-1] else 1.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("n", EXTENTS)
def test_beside_numpy(n: int, dtype: Any) -> None:
    for batch in BATCHES:
        a, y = matrices(batch, n, dtype), matrices(batch, n, dtype, 3)
        wide, k = a.astype(float), condition(a)
        close(pb.jit(np.linalg.solve)(a, y), np.linalg.solve(wide, y.astype(float)), dtype, k)
        close(pb.jit(np.linalg.inv)(a), np.linalg.inv(wide), dtype, k)
        sign, size = pb.jit(np.linalg.slogdet)(a)
        np.testing.assert_array_equal(sign, np.linalg.slogdet(wide)[0].astype(dtype))
        close(size, np.linalg.slogdet(wide)[1], dtype, k)
        positive = wide @ np.swapaxes(wide, -1, -2) + np.eye(n)
        close(pb.jit(np.linalg.cholesky)(positive.astype(dtype)), np.linalg.cholesky(positive), dtype, condition(positive))


@pytest.mark.parametrize("form", ["ik,kj->ij", "ki,kj->ij", "ik,jk->ij", "ki,jk->ij", "ik,kj->ji"])
def test_products(form: str) -> None:
    rng = np.random.default_rng(3)
    left, _, rest = form.partition(",")
    right, _, out = rest.partition("->")
    for m, k, n in ((1, 1, 1), (2, 5, 3), (6, 6, 6), (16, 3, 16), (7, 16, 9), (17, 4, 4), (4, 0, 3), (0, 4, 3)):
        known = {"i": m, "k": k, "j": n}
        for batch in BATCHES:
            spec = f"...{left},...{right}->...{out}"
            for dtype in (np.float64, np.float32):
                x, y = (rng.normal(size=(*batch, *(known[c] for c in word))).astype(dtype) for word in (left, right))
                expected = np.einsum(spec, x.astype(float), y.astype(float))
                close(pb.jit(lambda x, y: np.einsum(spec, x, y))(x, y), expected, dtype)  # noqa: B023


def test_every_stage_agrees() -> None:
    a, y = matrices((17,), 4, np.float64), matrices((17,), 4, np.float64, 2)
    for function in (
        np.linalg.solve,
        lambda a, y: np.linalg.cholesky(a @ np.swapaxes(a, -1, -2) + y[..., :1] * 0 + np.eye(4)) @ y,
    ):
        traced = trace(function, (a, y), {})
        values = traced.arguments(flatten(((a, y), {}))[0])
        assert values is not None
        results = run_targets(traced.function, values)
        for result in results.values():
            np.testing.assert_allclose(result[0], results["interpreter"][0], rtol=1e-10, atol=1e-10)


def test_each_lane_finds_its_own_pivots() -> None:
    rng = np.random.default_rng(0)
    a = np.stack([np.eye(6)[rng.permutation(6)] * rng.choice([-3.0, 1e-3, 5.0], 6) for _ in range(40)])
    y = rng.normal(size=(40, 6, 1))
    np.testing.assert_allclose(pb.jit(np.linalg.solve)(a, y), np.linalg.solve(a, y), rtol=1e-14)
    for part in (a, a.transpose(0, 2, 1), a[::-2], np.asfortranarray(a)):
        np.testing.assert_allclose(pb.jit(np.linalg.inv)(part), np.linalg.inv(part), rtol=1e-14, atol=1e-300)


def test_one_that_fails_among_many() -> None:
    good = np.broadcast_to(np.eye(3), (33, 3, 3)).copy()
    bad = good.copy()
    bad[20, 1, 1] = 0.0
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        pb.jit(np.linalg.inv)(bad)
    bad[20, 1, 1] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
        pb.jit(np.linalg.cholesky)(bad)
    np.testing.assert_array_equal(pb.jit(np.linalg.inv)(good), good)


def test_what_is_not_a_number_stays_in_its_matrix() -> None:
    a = np.tile(np.eye(5) * 3 + 1, (20, 1, 1))
    a[7, 2, 3] = np.nan
    a[9, 1, 1] = np.inf
    result = pb.jit(np.linalg.solve)(a, np.ones((20, 5, 1)))
    alone = np.linalg.solve(a[:1], np.ones((1, 5, 1)))
    rest = [k for k in range(20) if k not in (7, 9)]
    np.testing.assert_allclose(result[rest], np.repeat(alone, len(rest), 0), rtol=1e-14)
    assert np.isnan(result[7]).any()


@pytest.mark.parametrize("n", [1, 3, 6, 17])
def test_gradients(n: int) -> None:
    """Gradients to second order agree with the same function of one matrix at a time, which a library computes."""
    a, y = matrices((9,), n, np.float64), matrices((9,), n, np.float64, 1)[..., 0]
    w = np.random.default_rng(n).normal(size=(n,))

    def one(a: Array, y: Array) -> Array:
        x = np.linalg.solve(a, y)
        return np.sum(w * x * x) + np.linalg.slogdet(a @ a.T + np.eye(n))[1] + np.sum(np.linalg.cholesky(a @ a.T + np.eye(n)) * w)

    def many(a: Array, y: Array) -> Array:
        x = np.linalg.solve(a, y[..., None])[..., 0]
        positive = a @ np.swapaxes(a, -1, -2) + np.eye(n)
        return np.sum(w * x * x) + np.sum(np.linalg.slogdet(positive)[1]) + np.sum(np.linalg.cholesky(positive) * w)

    first = pb.jit(pb.grad(many, argnums=(0, 1)))(a, y)
    alone = [pb.jit(pb.grad(one, argnums=(0, 1)))(a[k], y[k]) for k in range(9)]
    for position in (0, 1):
        expected = np.stack([g[position] for g in alone])
        np.testing.assert_allclose(first[position], expected, rtol=1e-7, atol=1e-9 * np.max(np.abs(expected)))
    direction = np.random.default_rng(1).normal(size=a.shape)
    second = pb.jit(pb.grad(lambda a: np.sum(direction * pb.grad(many)(a, y))))(a)
    step = 1e-6
    ahead, behind = (pb.jit(pb.grad(many))(a + sign * step * direction, y) for sign in (1, -1))
    numeric = (ahead - behind) / (2 * step)
    np.testing.assert_allclose(second, numeric, rtol=1e-3, atol=1e-4 * np.max(np.abs(numeric)))
