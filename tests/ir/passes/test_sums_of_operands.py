"""Sums of an operand over the terms of a batch of products, in the kernel that packs it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer import flatten, trace
from tests.support.targets import assert_close, run_targets

Array = Any


def weighted(share: Array, x: Array, means: Array) -> tuple[Array, Array]:
    """Second moments of points about means, and the first ones, by shares (n, k)."""
    centred = x[:, None, :] - means
    scaled = share[:, :, None] * centred
    return np.einsum("nki,nkj->kij", scaled, centred), np.sum(scaled, axis=0)


def turned(share: Array, x: Array, means: Array, y: Array) -> tuple[Array, Array, Array]:
    """The same with a right operand (k, d, n) whose terms are neighbours."""
    scaled = share[:, :, None] * (x[:, None, :] - means)
    return np.einsum("nki,kjn->kij", scaled, y), np.sum(scaled, axis=0), np.sum(y - means[:, :, None])


def arguments(n: int, k: int, d: int, dtype: Any = np.float64) -> list[Array]:
    rng = np.random.default_rng(n + 10 * k + 100 * d)
    return [rng.normal(size=shape).astype(dtype) for shape in ((n, k), (n, d), (k, d))]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [3, 10, 20, 24, 31])
def test_sums(d: int, dtype: Any) -> None:
    """One kernel for all numbers of points and components, with the same bits on one thread and on two."""
    compiled = pb.jit(weighted)
    for n, k in ((0, 2), (1, 1), (7, 3), (64, 2), (65, 70), (200, 30)):
        inputs = arguments(n, k, d, dtype)
        result = compiled(*inputs)
        eps = np.finfo(dtype).eps
        for one, wanted, most in zip(result, weighted(*inputs), weighted(*map(np.abs, inputs)), strict=True):
            np.testing.assert_allclose(one, wanted, rtol=0, atol=8 * (n + 4) * eps * max(1.0, 8 * np.max(most, initial=0.0)))
        for threads in (1, 2):
            with_threads(threads)
            again = compiled(*inputs)
            assert all(np.array_equal(a, b) for a, b in zip(result, again, strict=True))


def with_threads(count: int) -> None:
    pb.set_num_threads(count)


@pytest.fixture(autouse=True)
def same_threads() -> Any:
    before = pb.get_num_threads()
    yield
    pb.set_num_threads(before)


@pytest.mark.parametrize(("form", "d"), [(weighted, 20), (weighted, 5), (turned, 28), (turned, 6)])
def test_stages(form: Any, d: int) -> None:
    """All stages agree with the interpreter of the func, where tiles pack the operand and where they do not."""
    inputs = arguments(9, 2, d)
    if form is turned:
        inputs.append(np.random.default_rng(d).normal(size=(2, d, 9)))
    result = trace(form, tuple(inputs), {})
    values = result.arguments(flatten((tuple(inputs), {}))[0])
    assert values is not None
    results = run_targets(result.function, [np.asarray(v) for v in values])
    expected = results.pop("interpreter")
    for target, got in results.items():
        for one, wanted in zip(got, expected, strict=True):
            assert_close(one, wanted, 200, max(1.0, float(np.max(np.abs(wanted)))), target)


def test_an_operand_is_read_once() -> None:
    """The sum has no kernel of its own, nor where it is computed before the products."""
    text = pb.jit(weighted).stages(*arguments(30, 4, 20))["lower"]
    assert text.count("left_row_sums=true") == 1
    assert text.count("launch") == 1
