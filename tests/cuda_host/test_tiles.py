"""The instructions of a warp on tiles of a matrix, and asynchronous copies, against NumPy and PTX's tables."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests import cuda_host

KERNEL = 'extern "C" __global__ void k({}) {{\n{}\n}}\n'
LANE = "int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;\n"
ROWS = "float* d, const T* a, const T* b"
HALVES = """
unsigned x[4], y[2];
for (int i = 0; i < 8; ++i) {
    int row = i < 2 || (i >= 4 && i < 6) ? g : g + 8, column = t * 2 + (i & 1) + (i >= 4 ? 8 : 0);
    x[i / 2] = i % 2 ? x[i / 2] | (unsigned)a[row * 16 + column] << 16 : a[row * 16 + column];
}
for (int i = 0; i < 4; ++i) {
    int row = t * 2 + (i & 1) + (i >= 2 ? 8 : 0);
    y[i / 2] = i % 2 ? y[i / 2] | (unsigned)b[row * 8 + g] << 16 : b[row * 8 + g];
}
"""
WORDS = """
unsigned x[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
unsigned y[2] = {b[t * 8 + g], b[(t + 4) * 8 + g]};
"""
SUM = """
float z[4];
for (int i = 0; i < 4; ++i) z[i] = d[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)];
pb_mma_{}(z, x, y);
for (int i = 0; i < 4; ++i) d[(i < 2 ? g : g + 8) * 8 + t * 2 + (i & 1)] = z[i];
"""
DOUBLES = """
double z[2] = {d[g * 8 + t * 2], d[g * 8 + t * 2 + 1]};
pb_mma_m8n8k4_f64(z, a[g * 4 + t], b[t * 8 + g]);
d[g * 8 + t * 2] = z[0];
d[g * 8 + t * 2 + 1] = z[1];
"""


def rounded_to_tf32(x: Any) -> Any:
    return ((x.view(np.uint32) + 0x1000) & ~np.uint32(0x1FFF)).view(np.float32)


@pytest.mark.parametrize("order", [0, 1, 5])
@pytest.mark.parametrize(
    ("name", "dtype", "depth"),
    [("m16n8k16_f16", np.float16, 16), ("m16n8k16_bf16", ml_dtypes.bfloat16, 16), ("m16n8k8_tf32", np.float32, 8)],
)
def test_a_product_of_tiles(bench: Any, name: str, dtype: Any, depth: int, order: int) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=s).astype(dtype) for s in ((16, depth), (depth, 8)))
    d = rng.normal(size=(16, 8)).astype(np.float32)
    word = "unsigned" if depth == 8 else "unsigned short"
    body = LANE + (WORDS if depth == 8 else HALVES) + SUM.format(name)
    function = bench.function(KERNEL.format(ROWS.replace("T", word), body))
    cuda_host.order(order)
    places = [bench.put(x if x.itemsize > 2 else x.view(np.uint16)) for x in (d, a, b)]
    function(*places, grid=(1, 1), block=(32, 1, 1))
    exact = [rounded_to_tf32(x) if depth == 8 else x.astype(np.float32) for x in (a, b)]
    wanted = d.astype(np.float64) + exact[0].astype(np.float64) @ exact[1].astype(np.float64)
    np.testing.assert_allclose(bench.get(places[0], d), wanted, rtol=0, atol=4e-6)


def test_a_product_of_tiles_of_doubles(bench: Any) -> None:
    rng = np.random.default_rng(1)
    a, b, d = (rng.normal(size=s) for s in ((8, 4), (4, 8), (8, 8)))
    function = bench.function(KERNEL.format("double* d, const double* a, const double* b", LANE + DOUBLES))
    places = [bench.put(x) for x in (d, a, b)]
    function(*places, grid=(1, 1), block=(32, 1, 1))
    np.testing.assert_allclose(bench.get(places[0], d), d + a @ b, rtol=0, atol=1e-14)


def test_special_halves_keep_what_they_are(bench: Any) -> None:
    a = np.zeros((16, 16), np.float16)
    a[:, 0] = [np.inf, -np.inf, np.nan, 6e-8, -6e-8, 65504, -0.0, 1, *[0.5] * 8]
    b = np.zeros((16, 8), np.float16)
    b[0] = 1
    function = bench.function(KERNEL.format(ROWS.replace("T", "unsigned short"), LANE + HALVES + SUM.format("m16n8k16_f16")))
    places = [bench.put(x) for x in (np.zeros((16, 8), np.float32), a, b)]
    function(*places, grid=(1, 1), block=(32, 1, 1))
    result = bench.get(places[0], np.zeros((16, 8), np.float32))
    np.testing.assert_array_equal(result, np.repeat(a[:, :1].astype(np.float32), 8, 1))


LDMATRIX = """
__shared__ unsigned short rows[32][8];
for (int n = 0; n < 8; ++n) rows[threadIdx.x][n] = x[threadIdx.x * 8 + n];
__syncthreads();
unsigned words[{n}];
pb_ldmatrix_x{n}{turned}(words, rows[threadIdx.x % {rows}]);
for (int n = 0; n < {n}; ++n) found[threadIdx.x * {n} + n] = words[n];
"""


@pytest.mark.parametrize("turned", ["", "_trans"])
@pytest.mark.parametrize("n", [2, 4])
def test_tiles_are_loaded_by_their_rows(bench: Any, n: int, turned: str) -> None:
    rows = np.arange(32 * 8, dtype=np.uint16).reshape(32, 8)
    result = np.zeros((32, n), np.uint32)
    body = LDMATRIX.format(n=n, turned=turned, rows=8 * n)
    function = bench.function(KERNEL.format("unsigned* found, const unsigned short* x", body))
    places = [bench.put(result), bench.put(rows)]
    function(*places, grid=(1, 1), block=(32, 1, 1))
    for tile in range(n):
        part = rows[8 * tile : 8 * tile + 8]
        wanted = np.ascontiguousarray(part.T if turned else part).reshape(32, 2)
        words = bench.get(places[0], result)[:, tile]
        np.testing.assert_array_equal(np.stack([words & 0xFFFF, words >> 16], 1), wanted)


STAGED = """
__shared__ float4 stages[2][32];
int lane = threadIdx.x;
pb_cp_async16(&stages[0][lane], (const float4*)x + lane, true);
pb_cp_async_commit();
pb_cp_async16(&stages[1][lane], (const float4*)x + 32 + lane, lane < 20);
pb_cp_async_commit();
{first}
((float4*)y)[lane] = stages[0][31 - lane];
{last}
((float4*)y)[32 + lane] = stages[1][31 - lane];
"""


def staged(bench: Any, first: str, last: str) -> Any:
    x = np.arange(256, dtype=np.float32)
    function = bench.function(KERNEL.format("float* y, const float* x", STAGED.format(first=first, last=last)))
    places = [bench.put(np.zeros_like(x)), bench.put(x)]
    function(*places, grid=(1, 1), block=(32, 1, 1))
    return bench.get(places[0], x)


WAIT, BARRIER = "pb_cp_async_wait<{}>();", "__syncthreads();"


@pytest.mark.parametrize("order", [0, 1, 5])
def test_copies_arrive_behind_the_wait_for_their_group(bench: Any, order: int) -> None:
    cuda_host.order(order)
    x = np.arange(256, dtype=np.float32).reshape(2, 32, 4)
    x[1, 20:] = 0
    result = staged(bench, WAIT.format(1) + BARRIER, WAIT.format(0) + BARRIER)
    np.testing.assert_array_equal(result, x[:, ::-1].reshape(-1))
    result = staged(bench, WAIT.format(1) + BARRIER, WAIT.format(1) + BARRIER)
    assert np.isnan(result[128:]).all()


@pytest.mark.parametrize("order", [0, 1, 5])
def test_a_copy_that_others_read_needs_a_barrier_too(bench: Any, order: int) -> None:
    cuda_host.order(order)
    with bench.fails("shared memory", "line 10"):
        staged(bench, WAIT.format(1), WAIT.format(0) + BARRIER)


MISTAKES = {
    "a lane that has returned": (
        "if (threadIdx.x == 7) return;\nfloat d[4] = {};\nunsigned a[4] = {}, b[2] = {};\n"
        "pb_mma_m16n8k16_bf16(d, a, b);\nx[0] = d[0];",
        "line 5",
    ),
    "half a warp": (
        "float d[4] = {};\nunsigned a[4] = {}, b[2] = {};\n"
        "if (threadIdx.x < 16) pb_mma_m16n8k8_tf32(d, a, b);\nelse __syncthreads();\nx[0] = d[0];",
        "line 4: thread 0 waits for lanes of its mask ffffffff that do not come here",
    ),
    "two different products": (
        "float d[4] = {};\nunsigned a[4] = {}, b[2] = {};\n"
        "if (threadIdx.x < 16) pb_mma_m16n8k16_f16(d, a, b); else pb_mma_m16n8k16_bf16(d, a, b);\nx[0] = d[0];",
        "waits for lanes of its mask",
    ),
    "a copy to a place in between": (
        "__shared__ float y[64];\npb_cp_async16(y + threadIdx.x, x, true);",
        "line 3: cp.async of 16 bytes at",
    ),
    "a copy to global memory": ("pb_cp_async16(x, x, true);", "which are not in shared memory"),
    "a copy from behind the end": (
        "__shared__ float4 y[32];\npb_cp_async16(y + threadIdx.x, (float4*)x + 256 + threadIdx.x, true);",
        "behind the end of an allocation",
    ),
    "a copy over what others still read": (
        "__shared__ float4 y[32];\ny[threadIdx.x] = float4();\n__syncthreads();\nx[threadIdx.x] = y[threadIdx.x ^ 1].x;\n"
        "pb_cp_async16(y + threadIdx.x, x, true);",
        "a race: this thread",
    ),
}


@pytest.mark.parametrize("order", [0, 1, 5])
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_with_tiles_is_named_in_every_order(bench: Any, name: str, order: int) -> None:
    body, words = MISTAKES[name]
    function = bench.function(KERNEL.format("float* x", body))
    cuda_host.order(order)
    with bench.fails(words, "k, block ("):
        function(bench.put(np.zeros(1024, np.float32)), grid=(1, 1), block=(32, 1, 1))
        bench.driver.Context.synchronize()


def test_a_product_by_fewer_lanes_than_a_warp_has(bench: Any) -> None:
    body = "float d[4] = {};\nunsigned a[4] = {}, b[2] = {};\npb_mma_m16n8k16_bf16(d, a, b);\nx[0] = d[0];"
    function = bench.function(KERNEL.format("float* x", body))
    with bench.fails("mma.sync with mask ffffffff names lanes that the block of 16 threads has not"):
        function(bench.put(np.zeros(8, np.float32)), grid=(1, 1), block=(16, 1, 1))
        bench.driver.Context.synchronize()
