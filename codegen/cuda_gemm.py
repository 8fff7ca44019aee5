"""Matrix products in CUDA C: tiles in shared memory, of which each thread has a square in registers.

Products are multiply-adds, as those of libraries are. Large tiles are for products with enough of them; which are taken depends
on the extents only, and so does the order of every sum.
"""

from __future__ import annotations

SMALL_SIDE = 32


PRODUCTS = {
    "pb_gemm_tiles": """\
// The tiles of c = a @ b that a block of 256 threads takes: those whose number, behind ``before`` others, is its own modulo the
// grid's. A thread has ``side / 16`` rows and columns, in groups of 16 bytes, and fetches the next part of both tiles ahead.
template <bool ta, bool tb, int side, class T>
__device__ void pb_gemm_tiles(const T* a, const T* b, T* c, long long rows, long long summed, long long columns,
                              long long before) {
    constexpr int depth = 1024 / side < 16 ? 1024 / side : 16, each = side / 16, fetched = side * depth / 256;
    constexpr int group = 16 / (int)sizeof(T) < each ? 16 / (int)sizeof(T) : each, pad = 16 / sizeof(T);
    __align__(16) __shared__ T left[depth][side + pad];
    __align__(16) __shared__ T right[depth][side + pad];
    int self = threadIdx.x, y = self / 16 * group, x = self % 16 * group;
    long long across = (columns + side - 1) / side, tiles = (rows + side - 1) / side * across;
    long long first = (blockIdx.x + gridDim.x - before % gridDim.x) % gridDim.x;
    for (long long tile = first; tile < tiles; tile += gridDim.x) {
        long long top = tile / across * side, beside = tile % across * side;
        int height = rows - top < side ? rows - top : side, width = columns - beside < side ? columns - beside : side;
        T total[each][each] = {}, a_next[fetched], b_next[fetched];
        auto fetch = [&](long long start) {
            const T* a_part = a + (ta ? start * rows + top : top * summed + start);
            const T* b_part = b + (tb ? beside * summed + start : start * columns + beside);
            int left = summed - start < depth ? summed - start : depth;
#pragma unroll
            for (int n = 0; n < fetched; ++n) {
                int at = self + n * 256, i = ta ? at % side : at / depth, k = ta ? at / side : at % depth;
                a_next[n] = i < height && k < left ? a_part[ta ? k * rows + i : i * summed + k] : T(0);
                int j = tb ? at / depth : at % side, m = tb ? at % depth : at / side;
                b_next[n] = j < width && m < left ? b_part[tb ? j * summed + m : m * columns + j] : T(0);
            }
        };
        fetch(0);
        for (long long start = 0; start < summed; start += depth) {
#pragma unroll
            for (int n = 0; n < fetched; ++n) {
                int at = self + n * 256;
                left[ta ? at / side : at % depth][ta ? at % side : at / depth] = a_next[n];
                right[tb ? at % depth : at / side][tb ? at / depth : at % side] = b_next[n];
            }
            __syncthreads();
            if (start + depth < summed) fetch(start + depth);
#pragma unroll 2
            for (int k = 0; k < depth; ++k) {
                T p[each], q[each];
#pragma unroll
                for (int n = 0; n < each; ++n) {
                    p[n] = left[k][n / group * 16 * group + y + n % group];
                    q[n] = right[k][n / group * 16 * group + x + n % group];
                }
#pragma unroll
                for (int n = 0; n < each; ++n)
#pragma unroll
                    for (int m = 0; m < each; ++m) total[n][m] = fma(p[n], q[m], total[n][m]);
            }
            __syncthreads();
        }
#pragma unroll
        for (int n = 0; n < each; ++n)
#pragma unroll
            for (int m = 0; m < each; ++m) {
                int i = n / group * 16 * group + y + n % group, j = m / group * 16 * group + x + m % group;
                if (i < height && j < width) c[(top + i) * columns + beside + j] = total[n][m];
            }
    }
}""",
    "pb_gemm": """\
// c = a @ b, the product of that number in a batch of so many; large tiles if these give 128 blocks work.
template <bool ta, bool tb, class T>
__device__ void pb_gemm(const T* a, const T* b, T* c, long long rows, long long summed, long long columns, long long number,
                        long long count) {
    constexpr int side = 512 / sizeof(T);
    long long large = (rows + side - 1) / side * ((columns + side - 1) / side), small = (rows + 31) / 32 * ((columns + 31) / 32);
    if (large * count >= 128) pb_gemm_tiles<ta, tb, side>(a, b, c, rows, summed, columns, number * large);
    else pb_gemm_tiles<ta, tb, 32>(a, b, c, rows, summed, columns, number * small);
}""",
}
