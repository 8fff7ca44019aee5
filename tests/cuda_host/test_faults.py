"""Mistakes in CUDA C, each found and named by the stand-in: in text of our own, and planted in emitted text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.ir.text import parse_function
from tests import cuda_host
from tests.support.cuda.host_kernels import Host
from tests.support.cuda.host_programs import expected, run_program
from tests.support.cuda.targets import needs_host
from tests.support.paths import GOLDEN

HERE = Path(__file__).parent
SOFTMAX = parse_function((GOLDEN / "cuda" / "softmax.ir").read_text())
ROWS = np.random.default_rng(0).normal(size=(5, 70)).astype(np.float32)


def planted(old: str, new: str) -> Any:
    """A machine that compiles emitted text with one place of it changed."""

    class Planted(Host):
        def edited(self, text: str) -> str:
            assert old in text
            return text.replace(old, new, 1)

    return Planted


@needs_host
def test_emitted_text_without_a_mistake() -> None:
    np.testing.assert_allclose(run_program(Host, SOFTMAX, [ROWS])[0], expected(SOFTMAX, [ROWS])[0], rtol=1e-6)


@needs_host
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "warps[threadIdx.x / 32] = x;\n    __syncthreads();",
            "warps[threadIdx.x / 32] = x;",
            ["k0, block (", "thread (", "shared memory", "line "],
        ),
        ("__shfl_down_sync(0xffffffffu", "__shfl_down_sync(0x0000ffffu", ["k0, block (", "a shuffle with mask 0000ffff"]),
        ("x[i * s1 + first2]", "x[i * s1 + first2 + 4 * s1]", ["illegal memory", "k0, block (", "behind the end of an", "line "]),
        ("x[i * s1 + first2]", "x[i * s1 + first2 - 1200]", ["illegal memory access", "k0, block (", "before an allocation"]),
        ("&p[i * s1 + first3]", "&p[i * s1 + first3 - 4]", ["k0 wrote 16 bytes before an allocation of 1400 bytes"]),
        ("shared ? (float*)(pb_shared) : row2_rows + blockIdx.x * s1", "row2_rows + 0 * s1", ["k0", "a race between blocks"]),
    ],
    ids=["barrier", "mask", "behind", "before", "one pack too low", "the row of another block"],
)
def test_a_mistake_planted_in_emitted_text(bench: Any, old: str, new: str, words: list[str]) -> None:
    with bench.fails(*words):
        run_program(planted(old, new), SOFTMAX, [ROWS])


KERNEL = 'extern "C" __global__ void k({}) {{\n{}\n}}\n'


def bodies(name: str) -> dict[str, tuple[str, str, str]]:
    """By their names: parameters, statements and words of the cases of a file."""
    result = re.findall(r"//// (.*) \((.*)\):(?: (.*))?\n((?:(?!////).*\n?)*)", (HERE / name).read_text())
    return {name: (parameters, body.strip(), words) for name, parameters, words, body in result}


MISTAKES, PROPER = bodies("mistakes.cu"), bodies("proper.cu")


@pytest.mark.parametrize("order", [0, 1, 5])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_every_order(bench: Any, name: str, order: int) -> None:
    parameters, body, words = MISTAKES[name]
    position = bench.put(np.zeros(1024, np.float32))
    function = bench.function(KERNEL.format(parameters, body))
    cuda_host.order(order)
    with bench.fails(words, "k, block ("):
        function(position, grid=(2, 1), block=(64, 1, 1), shared=128)
        bench.driver.Context.synchronize()


@pytest.mark.parametrize("name", PROPER)
def test_what_is_no_mistake_gives_the_same_in_every_order(bench: Any, name: str) -> None:
    start = "__shared__ float y[64];\nint i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    function = bench.function(KERNEL.format("float* x", start + PROPER[name][1]))
    values = np.arange(256, dtype=np.float32)
    result = []
    for order in (0, 1, 2, 3):
        cuda_host.order(order)
        position = bench.put(values)
        function(position, grid=(4, 1), block=(64, 1, 1))
        result.append(bench.get(position, values))
    assert not np.array_equal(result[0], values)
    for other in result[1:]:
        np.testing.assert_array_equal(other, result[0])


def test_the_last_block_may_read_what_the_others_wrote_behind_a_fence(bench: Any) -> None:
    """The usual way to join the results of blocks in one launch."""
    body = """
    __shared__ bool last;
    if (threadIdx.x == 0) {{
        parts[blockIdx.x] = blockIdx.x;
        {}
        last = atomicAdd(count, 1) == gridDim.x - 1;
    }}
    __syncthreads();
    if (last && threadIdx.x == 0) for (int b = 0; b < gridDim.x; ++b) total[0] += parts[b];
"""
    for fence in ("__threadfence();", ""):
        function = bench.function(KERNEL.format("float* parts, int* count, float* total", body.format(fence)))
        places = [bench.put(np.zeros(n, np.int32)) for n in (8, 1, 1)]
        if fence:
            function(*places, grid=(8, 1), block=(32, 1, 1))
            assert bench.get(places[2], np.zeros(1, np.float32))[0] == 28
        else:
            with bench.fails("a race between blocks"):
                function(*places, grid=(8, 1), block=(32, 1, 1))
                bench.driver.Context.synchronize()


def test_memory_that_was_freed(bench: Any) -> None:
    function = bench.function(KERNEL.format("float** x", "x[0][threadIdx.x] = 1;"))
    position = bench.put(np.zeros(64, np.float32))
    table = bench.put(np.array([int(position)], np.uint64))
    function(table, block=(64, 1, 1))
    bench.driver.Context.synchronize()
    position.free()
    with bench.fails("of an allocation of 256 bytes that was freed"):
        function(table, block=(64, 1, 1))
        bench.driver.Context.synchronize()


def test_a_write_just_before_an_allocation(bench: Any) -> None:
    function = bench.function(KERNEL.format("float* x", "(x - 3)[0] = 1;"))
    with bench.fails("k wrote 12 bytes before an allocation of 256 bytes"):
        function(bench.put(np.zeros(64, np.float32)), block=(1, 1, 1))
        bench.driver.Context.synchronize()


def test_memory_never_written_is_nan(bench: Any) -> None:
    position = bench.driver.mem_alloc(400)
    assert np.isnan(bench.get(position, np.zeros(100, np.float32))).all()


SPINS = {
    "for a thread of the block": "if (threadIdx.x == 0)\n    while (*(volatile int*)x == 0) {}\nelse x[0] = 1;",
    "for a later block": "if (blockIdx.x == 0)\n    while (atomicAdd(x, 0) == 0) {}\nelse atomicAdd(x, 1);",
    "without a look at memory": "for (volatile int n = 0; x; n += 1) {\n}",
}


@pytest.mark.parametrize("name", SPINS)
def test_a_launch_without_end(bench: Any, name: str) -> None:
    position = bench.put(np.zeros(2, np.int32))
    function = bench.function(KERNEL.format("int* x", SPINS[name]))
    for _ in range(2):
        with cuda_host.limit(0.05), bench.fails("timed out", "k, block (", "the launch does not end in 0.05 s"):
            function(position, grid=(2, 1), block=(2, 1, 1))
            bench.driver.Context.synchronize()
    function = bench.function(KERNEL.format("int* x", "x[0] = 7;"))
    function(position, block=(1, 1, 1))
    assert bench.get(position, np.zeros(2, np.int32))[0] == 7
