"""What a GPU's kernels take, by the compiler's own account: each is compiled for three architectures, without a GPU or a driver.

Its registers, local memory, spills and shared memory are held against files in
tests/golden/cuda/resources, which `--bless` writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks.case import Case
from benchmarks.cases import CASES
from pullback.codegen.cuda.emit import emit_all
from pullback.codegen.cuda.schedule.schedule import schedule
from pullback.codegen.cuda.source import graph_loops as cuda_graph_loops
from pullback.ir import Function
from pullback.ir.text import parse_module
from pullback.runtime.cuda.compile import cubin, nvcc, nvrtc
from pullback.runtime.cuda.compile.compile import OPTIONS
from tests.repository.test_benchmarks import PAIRS
from tests.runtime.cuda.test_user_programs import WITHOUT_CUDA, compiled
from tests.support.cuda.host_programs import scheduled, traced
from tests.support.matmul import forms as product_forms
from tests.support.paths import GOLDEN
from tests.tables.control_programs import PROGRAMS

RESOURCES = GOLDEN / "cuda" / "resources"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90")
FILES = sorted([*(GOLDEN / "cuda").glob("*.ir"), *(GOLDEN / "kernels").glob("*.ir")])
HOT = tuple(f"{name}/grad" for name in ("black_scholes", "chain", "gelu_mm", "layernorm", "logreg", "nbody", "softmax", "xent"))
"""Workloads whose kernels may spill nothing: what they compute belongs in registers."""
PRODUCTS = ("f32-plain-plain", "f32-scaled-both", "f64-plain-plain", "f64-scaled-both", "f16-plain-plain", "bf16-plain-turned")
"""Forms of products (see ``product_forms``) whose kernels may spill nothing: their sums belong in registers."""
OF_BLOCK = 48 << 10
"""Bytes of shared memory that a block may take without asking the driver for more."""


@cache
def compiler() -> nvrtc.Nvrtc | nvcc.Nvcc:
    library, no_library = nvrtc.find()
    program, no_program = nvcc.find()
    if library is None and program is None:
        pytest.skip(f"needs NVRTC ({no_library}) or nvcc ({no_program}): pip install 'pullback[test]'")
    result = library or program
    assert result is not None
    return result


def rows(function: Function) -> list[list[str]]:
    """A kernel of a function's a row, as in ``rows_of``."""
    try:
        return rows_of(scheduled(function)[0].functions[1:])
    except NotImplementedError as error:
        return [["-", f"no CUDA C: {error}"]]


def rows_of(kernels: Sequence[Function]) -> list[list[str]]:
    """A kernel a row: its name, then for each architecture its registers, and bytes of local memory, of spills, and shared."""
    text = emit_all(kernels)
    result: dict[str, list[str]] = {}
    for arch in ARCHITECTURES:
        code, remarks = compiler().explained(text, arch, OPTIONS)
        spilled = spills(remarks)
        for name, taken in cubin.resources(code).items():
            assert taken.shared <= OF_BLOCK
            result.setdefault(name, [name]).append(f"{taken.registers} {taken.local} {spilled[name]} {taken.shared}")
    return sorted(result.values(), key=lambda row: [int(n) for n in re.findall(r"\d+", row[0])])


def spills(remarks: str) -> dict[str, int]:
    """The bytes that are stored and loaded for want of registers, by kernel, in what it calls too."""
    parts = remarks.split("Compiling entry function ")[1:]
    return {part.split("'")[1]: sum(map(int, re.findall(r"(\d+) bytes spill", part))) for part in parts}


def check(name: str, result: list[list[str]], bless: bool) -> list[list[str]]:
    """The rows are those of the golden file; made by another compiler, they may differ in registers and local memory."""
    path = RESOURCES / f"{name}.txt"
    head = f"# {compiler().name}; {', '.join(ARCHITECTURES)}: registers, bytes of local memory, of spills, of shared memory\n"
    if bless:
        path.write_text(head + "".join("  ".join(f"{cell:<18}" for cell in row).rstrip() + "\n" for row in result))
    first, *lines = path.read_text().splitlines(keepends=True)
    wanted = [re.split(r"  +", line.strip(), maxsplit=len(ARCHITECTURES)) for line in lines]
    if first == head:
        assert result == wanted
    else:
        assert [lasting(row) for row in result] == [lasting(row) for row in wanted]
    return result


def lasting(row: list[str]) -> list[str]:
    """What no compiler changes of a row: the kernel's name and its shared memory."""
    return [row[0], *(cell.rpartition(" ")[2] for cell in row[1:])]


def spilled(result: list[list[str]]) -> list[str]:
    """The kernels that spill."""
    return [f"{row[0]} {cell}" for row in result for cell in row[1:] if row[0] != "-" and int(cell.split()[2])]


def name_of(path: Path) -> str:
    return f"{path.parent.name}_{path.stem}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_golden_kernels(path: Path, bless: bool) -> None:
    (function, *_) = parse_module(path.read_text().partition("# =>\n")[0]).functions
    check(name_of(path), rows(function), bless)


def smallest(name: str) -> Case:
    """The first case of a workload, without its size."""
    return next(case for case in CASES if case.name.startswith(name) or f"{case.workload}/{case.name}".startswith(name))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", HOT)
def test_hot_kernels_spill_nothing(name: str, dtype: str, bless: bool) -> None:
    case = smallest(name)
    function, _ = traced(compiled(case), *case.make(np.dtype(dtype).type, **case.small))
    assert not spilled(check(f"{name.replace('/', '_')}_{dtype}", rows(function), bless))


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_spill_nothing(name: str, bless: bool) -> None:
    module = parse_module(product_forms.text(*name.split("-")))
    assert not spilled(check(f"product_{name}", rows_of([schedule(kernel) for kernel in module.functions[1:]]), bless))


@pytest.mark.long
@pytest.mark.parametrize(("case", "dtype"), PAIRS)
def test_kernels_of_every_workload_compile_without_spills(case: Case, dtype: str) -> None:
    function, _ = traced(compiled(case), *case.make(np.dtype(dtype).type, **case.small))
    assert not spilled(rows(function))


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(PROGRAMS) - WITHOUT_CUDA))
def test_kernels_of_programs_with_loops_compile(name: str) -> None:
    call, args = PROGRAMS[name]
    function, _ = traced(call, *args)
    assert all(len(row) == 1 + len(ARCHITECTURES) for row in rows(function))


def test_what_turns_loops_compiles_without_spills() -> None:
    for arch in ARCHITECTURES:
        code, remarks = compiler().explained(cuda_graph_loops.TEXT, arch, OPTIONS)
        assert set(cubin.resources(code)) == set(cuda_graph_loops.NAMES)
        assert not any(spills(remarks).values())


def test_a_spill_is_seen() -> None:
    """A block of 1024 threads leaves each 64 registers."""
    text = """extern "C" __global__ void __launch_bounds__(1024) k(const double* x, double* y) {
        double a[64], s = 0;
        for (int i = 0; i < 64; i++) a[i] = x[threadIdx.x * 64 + i];
        __syncthreads();
        for (int i = 0; i < 64; i++) s = s * a[i] + a[63 - i] * a[i];
        y[threadIdx.x] = s;
    }"""
    assert all(spills(compiler().explained(text, arch, OPTIONS)[1])["k"] > 0 for arch in ARCHITECTURES)


def test_there_is_no_other_file() -> None:
    names = {name_of(path) for path in FILES} | {f"{name.replace('/', '_')}_{d}" for name in HOT for d in ("float32", "float64")}
    names |= {f"product_{name}" for name in PRODUCTS}
    assert {path.stem for path in RESOURCES.iterdir()} == names
