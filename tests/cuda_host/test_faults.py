"""Mistakes in CUDA C, each found and named by the stand-in: in text of our own, and planted in emitted text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_library import Host
from cuda_program import expected, run_program
from cuda_targets import needs_host

from pullback.ir.text import parse_function

SOFTMAX = parse_function((Path(__file__).parent.parent / "cuda" / "softmax.ir").read_text())
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
        ("x[i * s1 + j2]", "x[i * s1 + j2 + s1]", ["illegal memory access", "k0, block (", "behind the end of an allocation", "line "]),
        ("x[i * s1 + j2]", "x[i * s1 + j2 - 1200]", ["illegal memory access", "k0, block (", "before an allocation"]),
        ("p[i * s1 + j3] = ", "p[i * s1 + j3 - 1] = ", ["k0 wrote 4 bytes before an allocation of 1400 bytes"]),
        ("row_own = row_rows + blockIdx.x * s1", "row_own = row_rows + 0 * s1", ["k0", "a race between blocks"]),
    ],
    ids=["barrier", "mask", "behind", "before", "one place too low", "the row of another block"],
)
def test_a_mistake_planted_in_emitted_text(bench: Any, old: str, new: str, words: list[str]) -> None:
    with bench.fails(*words):
        run_program(planted(old, new), SOFTMAX, [ROWS])


KERNEL = 'extern "C" __global__ void k({}) {{\n{}\n}}\n'
MISTAKES = {
    "half a block at a barrier": ("float* x", "if (threadIdx.x < 20) __syncthreads();", "barrier at line 2 is reached by 20 of 64 threads"),
    "two barriers": (
        "float* x", "if (threadIdx.x < 20)\n__syncthreads();\nelse\n__syncthreads();", "wait at different barriers",
    ),
    "a mask without the caller": ("float* x", "__shfl_sync(1u, 1, 0);", "with mask 00000001, without itself"),
    "a lane that has returned": (
        "float* x", "if (threadIdx.x % 32 == 7) return; __syncthreads_count(0); __shfl_sync(~0u, 1, 0);", "barrier at line 2",
    ),
    "a mask that names who has returned": (
        "float* x", "if (threadIdx.x % 32 == 7) return;\n__shfl_sync(~0u, 1, 0);", "line 3",
    ),
    "lanes that do not come": ("float* x", "if (threadIdx.x % 32 < 7) __shfl_sync(~0u, 1, 0); else __syncthreads();", "line 2"),
    "two masks": ("float* x", "__shfl_sync(threadIdx.x % 32 ? ~0u : 0x7fffffffu, 1, 0);", "by lane"),
    "a misaligned load": ("float4* x", "float4 y = ((float4*)((float*)x + 1))[0]; x[1] = y;", "misaligned use of 'const struct float4'"),
    "a misaligned store": ("float4* x", "((float4*)((float*)x + 2))[0] = float4();", "needs a multiple of 16 bytes"),
    "behind a local array": ("float* x", "float y[4] = {}; x[threadIdx.x] = y[threadIdx.x];", "index 4 out of bounds of 'float [4]'"),
    "behind a shared array": ("float* x", "__shared__ float y[8]; y[threadIdx.x] = 1;", "index 8 out of bounds"),
    "a null pointer": ("float* x", "float* y = 0; y[0] = 1;", "null pointer"),
    "a division by zero": ("int* x", "x[threadIdx.x] = 5 / (int)(threadIdx.x / 64);", "division of 'int' by zero"),
    "a shift past the width": ("int* x", "x[threadIdx.x] = 1 << (threadIdx.x + 32);", "a shift of 'int' by"),
    "a race for one place": ("float* x", "x[0] = threadIdx.x;", "a race: this thread writes global memory"),
    "a race between blocks": ("float* x", "if (threadIdx.x == 0) x[0] += 1;", "a race between blocks"),
    "shared memory that nobody wrote": (
        "float* x", "__shared__ float y[64]; if (threadIdx.x > 99) y[5] = 1;\nx[threadIdx.x + 64 * blockIdx.x] = y[threadIdx.x];", "no thread of the block has written",
    ),
    "a read before the barrier": (
        "float* x",
        "__shared__ float y[64]; y[threadIdx.x] = 0; __syncthreads();\ny[threadIdx.x] = 1;\n"
        "x[threadIdx.x + 64 * blockIdx.x] = y[threadIdx.x ^ 1];",
        "shared memory",
    ),
    "behind dynamic shared memory": ("float* x", "extern __shared__ float y[]; y[threadIdx.x] = 1;", "behind the 128 bytes of dynamic"),
    "a stack that is too long": (
        "float* x", "volatile char y[400000]; for (int n = 0; n < 400000; ++n) y[n] = 0; x[0] = y[7];", "the stack overflows",
    ),
    "an assertion": ("float* x", "assert(threadIdx.x < 5);", "assertion failed at line 2: threadIdx.x < 5"),
    "a trap": ("float* x", "if (threadIdx.x == 9) __trap();", "thread (9,0,0)"),
}  # fmt: skip


@pytest.mark.parametrize("order", [0, 1, 5])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_in_every_order(bench: Any, name: str, order: int) -> None:
    import cuda_host

    parameters, body, word = MISTAKES[name]
    place = bench.put(np.zeros(1024, np.float32))
    function = bench.function(KERNEL.format(parameters, body))
    cuda_host.order(order)
    with bench.fails(word if order == 0 or "index" not in word else "out of bounds", "k, block ("):
        function(place, grid=(2, 1), block=(64, 1, 1), shared=128)
        bench.driver.Context.synchronize()


PROPER = {
    "partial masks": "if (threadIdx.x % 32 < 8) x[i] = __shfl_xor_sync(0xffu, x[i], 1); else x[i] = 0;",
    "a barrier in a loop": "for (int n = 0; n < 3; ++n) { y[threadIdx.x] = x[i] + n; __syncthreads(); x[i] = y[63 - threadIdx.x]; __syncthreads(); }",
    "a warp in step": "y[threadIdx.x] = x[i]; __syncwarp(); float z = y[threadIdx.x ^ 1]; __syncwarp(); y[threadIdx.x] = z; x[i] = z;",
    "an atomic sum": "__shared__ int n; if (threadIdx.x == 0) n = 0; __syncthreads(); atomicAdd(&n, 1); __syncthreads(); x[i] = n;",
    "a vote": "x[i] = __ballot_sync(~0u, threadIdx.x & 1) == 0xaaaaaaaau && __any_sync(~0u, threadIdx.x == 40) == (threadIdx.x >= 32);",
    "every thread reads one word": "if (threadIdx.x == 0) y[0] = blockIdx.x; __syncthreads(); x[i] = y[0]; __syncthreads(); y[threadIdx.x] = 0;",
}


@pytest.mark.parametrize("name", PROPER)
def test_what_is_no_mistake_gives_the_same_in_every_order(bench: Any, name: str) -> None:
    import cuda_host

    start = "__shared__ float y[64];\nint i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    function = bench.function(KERNEL.format("float* x", start + PROPER[name]))
    values = np.arange(256, dtype=np.float32)
    found = []
    for order in (0, 1, 2, 3):
        cuda_host.order(order)
        place = bench.put(values)
        function(place, grid=(4, 1), block=(64, 1, 1))
        found.append(bench.get(place, values))
    assert not np.array_equal(found[0], values)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


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
    place = bench.put(np.zeros(64, np.float32))
    table = bench.put(np.array([int(place)], np.uint64))
    function(table, block=(64, 1, 1))
    bench.driver.Context.synchronize()
    place.free()
    with bench.fails("of an allocation of 256 bytes that was freed"):
        function(table, block=(64, 1, 1))
        bench.driver.Context.synchronize()


def test_a_write_just_before_an_allocation(bench: Any) -> None:
    function = bench.function(KERNEL.format("float* x", "(x - 3)[0] = 1;"))
    with bench.fails("k wrote 12 bytes before an allocation of 256 bytes"):
        function(bench.put(np.zeros(64, np.float32)), block=(1, 1, 1))
        bench.driver.Context.synchronize()


def test_memory_never_written_is_nan(bench: Any) -> None:
    place = bench.driver.mem_alloc(400)
    assert np.isnan(bench.get(place, np.zeros(100, np.float32))).all()
