"""Matrix products by cuBLAS: a library of its interface in Python stands in for it, on the memory of the stand-in driver."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pullback as pb
from pullback.codegen.fuse import matmul_fusion
from pullback.programs.pipeline import fusion_target
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.choices import choices
from pullback.runtime.cuda.device.device import Device
from pullback.runtime.cuda.libraries import calls as cuda_calls
from pullback.runtime.cuda.libraries import libraries as cuda_libraries
from pullback.runtime.cuda.libraries import tuning as cuda_tuning
from pullback.runtime.cuda.program import call as cuda_call
from pullback.runtime.cuda.program.executable import CudaExecutable
from tests.runtime.cuda.test_programs import both
from tests.runtime.cuda.test_user_programs import close
from tests.support.cuda.driver_stand_in import device, order
from tests.support.cuda.library_fixture import library
from tests.support.cuda.library_stand_ins import Library

__all__ = ["device", "library", "order"]


@pytest.mark.parametrize("tapes", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(library: Library, order: None, dtype: Any, tapes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaExecutable, "uses_plans", tapes)
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s).astype(dtype) for s in ((5, 7), (7, 3), (4, 5, 7)))

    def f(a: Any, b: Any, c: Any, k: Any) -> Any:
        return a @ b, a.T @ (a + k), b.T @ a.T, (a * k) @ a.T, c @ b, c @ np.swapaxes(c, 1, 2), np.einsum("bij,bkj->bik", c, c)

    both(lambda a, b, c: f(a, b, c, dtype(1 + tapes)), a, b, c)
    products = [numbers for name, numbers in library.calls if name == "gemm"]
    assert {(m, n, k, count) for m, n, k, _, _, count in products} >= {(3, 5, 7, 1), (7, 7, 5, 1), (5, 5, 7, 4)}
    assert {ta for *_, ta, _, _ in products} == {tb for *_, tb, _ in products} == {0, 1}


@pytest.mark.long
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


class Repeated:
    """Stands for a graph of work that the stand-in of a library does when it is called: at each launch all of it is done."""

    def __init__(self, stream: Any, works: Sequence[Callable[[Any], None]]) -> None:
        self.stream, self.works, self.launches = stream, works, 0

    def launch(self, stream: int) -> None:
        assert stream == self.stream.handle
        self.launches += 1
        for work in self.works:
            work(self.stream)


@pytest.fixture
def graphs(device: Device, monkeypatch: pytest.MonkeyPatch) -> list[Repeated]:
    """Record the graphs that are captured during a test."""
    built: list[Repeated] = []

    def captured(device: Device, works: Sequence[Callable[[Any], None]], after: Any) -> Repeated:
        built.append(Repeated(device.stream, works))
        return built[-1]

    monkeypatch.setattr(cuda_call, "captured", captured)
    monkeypatch.setattr(cuda_tuning, "captured", captured)
    return built


def test_one_step_is_a_graph_too(library: Library, graphs: list[Repeated]) -> None:
    a = np.random.default_rng(0).normal(size=(5, 7))
    f, g, arguments = pb.jit(lambda a, b: a @ b), pb.jit(lambda a: a * 2), pb.device_put((a, a.T))
    for call, args, wanted in ((f, arguments, a @ a.T), (g, arguments[:1], a * 2)):
        graphs.clear()
        for _ in range(8):
            close([np.asarray(call(*args))], [wanted])
        assert len(graphs) in (1, 2) and sum(graph.launches for graph in graphs) >= 5


@pytest.fixture
def measured(library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> choices.Choices:
    """Return an empty table of choices over an empty cache."""
    cache = KernelCache(tmp_path / "cache")
    built = choices.Choices(lambda: cache, {})
    monkeypatch.setattr(cuda_calls, "choices", built)
    return built


def test_the_choice_is_measured_as_programs_run(measured: choices.Choices, graphs: list[Repeated]) -> None:
    f = pb.jit(lambda a, b: a @ b)
    a = np.random.default_rng(0).normal(size=(40, 40))
    close([np.asarray(f(*pb.device_put((a, a))))], [a @ a])
    assert [len(graph.works) for graph in graphs] == [cuda_tuning.REPEATS] * 2
    assert [graph.launches for graph in graphs] == [cuda_tuning.ROUNDS] * 2
    assert [choice.how for choice in measured.in_memory()] == ["measured"]


def test_what_cannot_be_captured_is_measured_step_by_step(measured: choices.Choices) -> None:
    f = pb.jit(lambda a, b: a @ b)
    a = np.random.default_rng(0).normal(size=(41, 41))
    close([np.asarray(f(*pb.device_put((a, a))))], [a @ a])
    assert [choice.how for choice in measured.in_memory()] == ["measured"]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_products_of_16_bits_are_ours(library: Library, dtype: Any) -> None:
    """Their tiles multiply numbers of 16 bits; what is read between products are such numbers."""
    rng = np.random.default_rng(0)
    w, v, x, b = (rng.normal(size=s).astype(dtype) for s in ((7, 9), (9, 4), (6, 7), (9,)))

    def loss(w: Any, v: Any, x: Any, b: Any) -> Any:
        return np.sum(np.tanh(np.maximum(x @ w + b, 0) @ v) ** 2)

    f = pb.jit(pb.grad(loss, argnums=(0, 1, 2)), device="cuda")
    result, wanted = f(w, v, x, b), pb.jit(pb.grad(loss, argnums=(0, 1, 2)))(w, v, x, b)
    for one, other in zip(result, wanted, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=0.05, atol=0.02)
    assert not library.calls
    stages = f.stages(w, v, x, b)
    units = set(re.findall(r"unit = (\w+)<", stages["cuda"]))
    assert units == {f"pb_unit_{'f16' if dtype is np.float16 else 'bf16'}"}
    assert not re.search(r"alloc.*f32|: &f32\[.*= alloc", stages["schedule"])


def test_products_of_both_widths_are_a_librarys(library: Library) -> None:
    a = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    both(lambda a, b: a @ b, a, a.astype(np.float16))
    assert library.calls


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
    assert fusion_target("cuda:1") in matmul_fusion.FUSING_TARGETS
    assert fusion_target("cpu") not in matmul_fusion.FUSING_TARGETS
    monkeypatch.setenv("PULLBACK_CHOICES", "gemm=library")
    assert fusion_target("cuda:1") not in matmul_fusion.FUSING_TARGETS
    monkeypatch.setenv("PULLBACK_CHOICES", "ours")
    assert fusion_target("cuda") in matmul_fusion.FUSING_TARGETS
