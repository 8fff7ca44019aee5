"""Matrix products by cuBLAS: a library of its interface in Python stands in for it, on the memory of the stand-in driver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_libraries import library
from cuda_solver import Library
from cuda_stand_in import device, order
from test_cuda_runtime import both

import pullback as pb
from pullback.codegen import carrying
from pullback.pipeline import fused_for
from pullback.runtime import cuda_libraries
from pullback.runtime.cuda_program import CudaExecutable

__all__ = ["device", "library", "order"]


@pytest.mark.parametrize("tapes", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(library: Library, order: None, dtype: Any, tapes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaExecutable, "uses_tapes", tapes)
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s).astype(dtype) for s in ((5, 7), (7, 3), (4, 5, 7)))

    def f(a: Any, b: Any, c: Any, k: Any) -> Any:
        return a @ b, a.T @ (a + k), b.T @ a.T, (a * k) @ a.T, c @ b, c @ np.swapaxes(c, 1, 2), np.einsum("bij,bkj->bik", c, c)

    both(lambda a, b, c: f(a, b, c, dtype(1 + tapes)), a, b, c)
    products = [numbers for name, numbers in library.calls if name == "gemm"]
    assert {(m, n, k, count) for m, n, k, _, _, count in products} >= {(3, 5, 7, 1), (7, 7, 5, 1), (5, 5, 7, 4)}
    assert {ta for *_, ta, _, _ in products} == {tb for *_, tb, _ in products} == {0, 1}


def test_gradients_and_calls_that_come_again(library: Library) -> None:
    rng = np.random.default_rng(0)
    w, x, y = [rng.normal(size=(6, 6)) for _ in range(3)], rng.normal(size=(8, 6)), rng.normal(size=(8, 6))

    @pb.jit
    def step(w: Any, x: Any, y: Any) -> Any:
        def loss(w: Any) -> Any:
            h = x
            for each in w:
                h = np.tanh(h @ each)
            return np.sum((h - y) ** 2)

        value, gradient = pb.value_and_grad(loss)(w)
        return value, [each - 0.01 * d for each, d in zip(w, gradient, strict=True)]

    placed, data, host = pb.device_put(w), pb.device_put((x, y)), w
    for _ in range(8):
        value, placed = step(placed, *data)
        wanted, host = step(host, x, y)
        np.testing.assert_allclose(float(value), wanted, rtol=1e-11)
    assert len(library.calls) >= 8 * 3


def test_no_rows(library: Library) -> None:
    both(lambda a, b: a @ b, np.ones((0, 3)), np.ones((3, 4)))
    both(lambda a, b: (a + 1) @ b, np.ones((2, 0)), np.ones((0, 4)))
    assert not library.calls


def test_a_library_that_does_not_start(library: Library) -> None:
    library.failing["cublasCreate_v2"] = 1
    both(lambda a, b: a @ (b + 2), np.ones((3, 3)), np.ones((3, 4)))
    assert not library.calls


def test_products_take_neighbours_along_where_no_library_multiplies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_libraries, "finders", [lambda name: "none"])
    assert fused_for("cuda:1") in carrying.TARGETS
    assert fused_for("cpu") not in carrying.TARGETS
    monkeypatch.setenv("PULLBACK_CHOICES", "gemm=library")
    assert fused_for("cuda:1") not in carrying.TARGETS
    monkeypatch.setenv("PULLBACK_CHOICES", "ours")
    assert fused_for("cuda") in carrying.TARGETS
