"""Matrix products in CUDA C, against the interpreter: ragged tiles, either operand transposed, batches, and nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_program import Make, expected, run_program, traced
from cuda_targets import on_each
from golden import assert_same

import pullback as pb
from pullback.codegen import carrying


def some(dtype: Any, *shape: int) -> Any:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(shape[0]).integers(-3, 4, shape).astype(dtype)


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products(machine: Make, dtype: Any) -> None:
    shapes = [(70, 37), (37, 65), (37, 70), (65, 37), (4, 20, 9), (4, 9, 35), (0, 5), (5, 0), (2, 3, 17, 8)]
    args = [some(dtype, *s) for s in shapes]

    def call(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, m: Any) -> Any:
        return a @ b, c.T @ b, a @ d.T, c.T @ d.T, e @ f, g @ h, h @ g, m @ np.swapaxes(m, 2, 3)

    function, values = traced(call, *args)
    assert_same(run_program(machine, function, values), expected(function, values))


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_tiles(machine: Make, dtype: Any) -> None:
    """Of which there must be 128."""
    a, b = some(dtype, 130, 70 if dtype is np.float64 else 130, 17), some(dtype, 130, 17, 5)
    function, values = traced(lambda a, b: (a @ b, np.swapaxes(b, 1, 2) @ np.swapaxes(a, 1, 2)), a, b)
    assert_same(run_program(machine, function, values), expected(function, values))


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_neighbours(machine: Make, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements before and after, sums down the columns, batches; the gradient of a layer."""
    monkeypatch.setattr(carrying, "TARGETS", frozenset({"cuda"}))
    x, w, b, xs, ws = (some(dtype, *s) for s in ((70, 37), (37, 65), (65,), (3, 9, 8), (3, 8, 7)))

    def layer(x: Any, w: Any, b: Any) -> Any:
        return np.sum(np.maximum(x @ w + b, 0) * b)

    def call(x: Any, w: Any, b: Any, xs: Any, ws: Any) -> Any:
        z = (x * 2) @ np.maximum(w, 0) + b
        batch = xs @ ws - 1
        gradients = pb.value_and_grad(layer, argnums=(0, 1, 2))(x, w, b)
        return z, np.abs(z), np.sum(z, axis=0), np.max(z), batch, np.sum(batch, axis=1), np.sum(batch), x[::-1] @ w, *gradients

    function, values = traced(call, x, w, b, xs, ws)
    assert_same(run_program(machine, function, values), expected(function, values))
