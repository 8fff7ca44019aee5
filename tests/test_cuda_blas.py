"""Matrix products by cuBLAS: a library of its interface in Python stands in for it, on the memory of the stand-in driver."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cuda_stand_in import device, order
from test_cuda_runtime import both

import pullback as pb
from pullback.pipeline import templates
from pullback.runtime import cuda_blas, cuda_device
from pullback.runtime.cuda_program import CudaExecutable

__all__ = ["device", "order"]


class Library:
    """cuBLAS as its documentation has it: matrices lie column by column. It works when it is called, so that nothing of it can be
    captured in a graph."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.stream = 0
        self.driver = ctypes.CDLL("libcuda.so.1")

    def cublasCreate_v2(self, handle: Any) -> int:
        return 0

    def cublasSetStream_v2(self, handle: Any, stream: Any) -> int:
        self.stream = stream
        return 0

    def cublasSetWorkspace_v2(self, handle: Any, place: Any, size: Any) -> int:
        return 0

    def cublasGemmStridedBatchedEx(self, handle: Any, *given: Any) -> int:
        ta, tb, m, n, k, alpha, a, ka, lda, sa, b, kb, ldb, sb, beta, c, kc, ldc, sc, count, arithmetic, algorithm = given
        if self.driver.cuStreamSynchronize(self.stream):
            return 14
        assert ka == kb == kc and algorithm == -1 and (alpha._obj.value, beta._obj.value) == (1, 0)
        dtype = {(0, 68): np.float32, (1, 70): np.float64}[ka, arithmetic]
        self.calls.append((m, n, k, ta, tb, count))
        for turn in range(count):
            left = matrix(a, sa.value * turn, lda, (k, m) if ta else (m, k), dtype)
            right = matrix(b, sb.value * turn, ldb, (n, k) if tb else (k, n), dtype)
            matrix(c, sc.value * turn, ldc, (m, n), dtype)[...] = (left.T if ta else left) @ (right.T if tb else right)
        return 0


def matrix(place: Any, start: int, leading: int, shape: tuple[int, int], dtype: Any) -> Any:
    """A matrix of so many rows and columns, column by column, ``leading`` elements from one column to the next."""
    rows, columns = shape
    size = np.dtype(dtype).itemsize
    assert leading >= rows
    memory = (ctypes.c_char * (leading * columns * size)).from_address(place.value + start * size)
    return np.ndarray((rows, columns), dtype, memory, strides=(size, leading * size))


@pytest.fixture(autouse=True)
def library(device: cuda_device.Device, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(cuda_blas, "libraries", [lambda: made])
    monkeypatch.setattr(cuda_blas, "WORTH", 1)
    monkeypatch.setattr(device, "_blas", [])
    forget()
    yield made
    forget()


def forget() -> None:
    """Programs that were made with or without cuBLAS are made anew."""
    templates.forget()
    gc.collect()


@pytest.mark.parametrize("tapes", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(library: Library, order: None, dtype: Any, tapes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaExecutable, "uses_tapes", tapes)
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s).astype(dtype) for s in ((5, 7), (7, 3), (4, 5, 7)))

    def f(a: Any, b: Any, c: Any, k: Any) -> Any:
        return a @ b, a.T @ (a + k), b.T @ a.T, (a * k) @ a.T, c @ b, c @ np.swapaxes(c, 1, 2), np.einsum("bij,bkj->bik", c, c)

    both(lambda a, b, c: f(a, b, c, dtype(1 + tapes)), a, b, c)
    assert {(m, n, k, count) for m, n, k, _, _, count in library.calls} >= {(3, 5, 7, 1), (7, 7, 5, 1), (5, 5, 7, 4)}
    assert {ta for *_, ta, _, _ in library.calls} == {tb for *_, tb, _ in library.calls} == {0, 1}


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


def test_a_library_that_does_not_start(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Library, "cublasCreate_v2", lambda self, handle: 1)
    both(lambda a, b: a @ (b + 2), np.ones((3, 3)), np.ones((3, 4)))
    assert not library.calls
