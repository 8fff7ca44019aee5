"""Whole programs of users through CUDA C, on a GPU and with g++ in place of one: what NumPy's arrays hold at their end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import pullback as pb
from benchmarks.case import Case
from benchmarks.cases import CASES, loops
from pullback.codegen.cuda.source import launch as cuda_launch
from pullback.tracer import flatten
from tests.pullback.test_random import OF_SHAPE
from tests.repository.test_benchmarks import PAIRS
from tests.support.cuda.gpu import Device
from tests.support.cuda.host_programs import Make, expected, run_program, traced
from tests.support.cuda.targets import on_each
from tests.support.programs import random_function
from tests.tables.control_programs import PROGRAMS

WITHOUT_CUDA = {"a callback", "cond of arrays", "map of a tree"}
"""Programs that call Python or LAPACK: no CUDA is emitted for that."""
SMALL = PAIRS
LOOPING = {case.workload for case in loops.CASES}
LARGE = [case for case in CASES if not case.large and case.workload not in LOOPING]
"""Without loops of a program, whose every step would copy what it takes to the GPU and back."""
MANY = 100_000


@pytest.fixture(autouse=True)
def few_elements_are_packed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_launch, "PACKED_FROM", 0)


def agree(machine: Make, call: Callable[..., Any], *args: Any, rtol: float = 1e-11) -> None:
    """A call through CUDA C gives what the interpreter does."""
    function, values = traced(call, *args)
    close(run_program(machine, function, values), expected(function, values), rtol)


def close(result: Any, wanted: Any, rtol: float = 1e-11, share: float = 2e-6) -> None:
    """Equal dtypes, shapes and integers, and floats that differ little: by ``share`` of their array's greatest in float32."""
    for a, b in zip(result, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.kind not in "fc":
            np.testing.assert_array_equal(a, b)
            continue
        narrow = b.dtype in (np.float32, np.complex64)
        size = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
        np.testing.assert_allclose(a, b, rtol=2e-5 if narrow else rtol, atol=(share if narrow else 1e-13) * size)


@on_each
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - WITHOUT_CUDA))
def test_control_flow(machine: Make, name: str) -> None:
    call, args = PROGRAMS[name]
    agree(machine, call, *args)


@on_each
@pytest.mark.parametrize("seed", range(30))
def test_random_programs_give_the_same_bits(machine: Make, seed: int) -> None:
    function = random_function(seed, exact=True)
    rng = np.random.default_rng(seed)
    values = [rng.integers(-3, 4, v.type.shape).astype(v.type.dtype.numpy) for v in function.parameters]
    for result, wanted in zip(run_program(machine, function, values), expected(function, values), strict=True):
        np.testing.assert_array_equal(result, wanted)


@on_each
@pytest.mark.parametrize("name", sorted(OF_SHAPE))
def test_random_numbers(machine: Make, name: str) -> None:
    agree(machine, partial(OF_SHAPE[name], s=(2, 150)), pb.random.key(3))


@on_each
@pytest.mark.parametrize(("case", "dtype"), SMALL)
def test_workloads_of_the_benchmarks(machine: Make, case: Case, dtype: str) -> None:
    agree(machine, compiled(case), *case.make(np.dtype(dtype).type, **case.small))


def compiled(case: Case) -> Callable[..., Any]:
    """What a case measures."""
    return pb.value_and_grad(case.function, argnums=case.wanted) if case.wanted else case.function


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("case", LARGE, ids=lambda c: c.label("")[:-1])
def test_workloads_at_the_sizes_that_are_measured(case: Case, dtype: str) -> None:
    """Where many blocks share the work: as the CPU's kernels compute it, which the benchmarks compare with NumPy."""
    if dtype not in case.dtypes:
        pytest.skip(f"not measured in {dtype}")
    arguments = case.make(np.dtype(dtype).type, **case.sizes)
    function, values = traced(compiled(case), *arguments)
    wanted = [np.asarray(leaf) for leaf in flatten(pb.jit(compiled(case))(*arguments))[0]]
    # Long cumulative sums of float32 differ by the order of their additions.
    close(run_program(Device, function, values), wanted, 1e-9, 5e-5 if "cumsum" in case.name else 2e-6)


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_long_vectors(machine: Make, dtype: Any) -> None:
    """More elements than one pass of a grid takes."""

    def call(x: Any, y: Any) -> Any:
        total = np.sum(x * y)
        best = np.argmax(x), np.argmin(y), np.max(x), np.min(x - y)
        return total, best, np.cumsum(x), np.where(x > y, x, y)[::-1], np.any(x > 99), np.all(x < 99)

    rng = np.random.default_rng(2)
    agree(machine, call, *rng.integers(-9, 10, (2, MANY)).astype(dtype))
