"""Tensor cores in the device functions of matrix products: the instructions, and the units of ``pb_product`` that use them.

By PTX's tables, lane 4 g + t holds rows g and g + 8 and columns 2 t and 2 t + 1 of a tile of sums; for f64, row g alone.
"""

from __future__ import annotations

_HALVES = """\
template <int rows_, int columns_, int depth_> struct pb_unit_{name}
#if __CUDA_ARCH__ < 800
    : pb_fma<pb_{name}, rows_, columns_, 2048 / rows_> {{}};
#else
{{
    using stored = unsigned short;
    using sum = float;
    static constexpr int rows = rows_, columns = columns_, depth = depth_, pad_along = 8, pad_across = 8;
    static constexpr bool follows = true;
    static constexpr int down = rows / 64, across = columns / 16, strip = 16, strips = down, wide = columns / 2;
    sum total[down][across][4] = {{}};
    template <class A, class B> __device__ void multiply(const stored* left, const stored* right) {{
        int lane = threadIdx.x % 32, y = threadIdx.x / 64 * (rows / 4), x = threadIdx.x / 32 % 2 * wide;
        int low = lane % 8, odd = lane / 8 % 2 * 8, high = lane / 16 * 8;
        left += A::by_rows ? A::place(y + odd + low, high) : A::place(y + odd, high + low);
        right += B::by_rows ? B::place(x + high + low, odd) : B::place(x + high, odd + low);
#pragma unroll
        for (int k = 0; k < depth; k += 16) {{
            unsigned p[down][4], q[across / 2][4];
#pragma unroll
            for (int n = 0; n < down; ++n) {{
                if constexpr (A::by_rows) pb_ldmatrix_x4(p[n], left + A::place(n * 16, k));
                else pb_ldmatrix_x4_trans(p[n], left + A::place(n * 16, k));
            }}
#pragma unroll
            for (int n = 0; n < across / 2; ++n) {{
                if constexpr (B::by_rows) pb_ldmatrix_x4(q[n], right + B::place(n * 16, k));
                else pb_ldmatrix_x4_trans(q[n], right + B::place(n * 16, k));
            }}
#pragma unroll
            for (int n = 0; n < down; ++n)
#pragma unroll
                for (int m = 0; m < across; ++m) {{
                    unsigned two[2] = {{q[m / 2][m % 2 * 2], q[m / 2][m % 2 * 2 + 1]}};
                    pb_mma_m16n8k16_{name}(total[n][m], p[n], two);
                }}
        }}
    }}
    __device__ void put(sum* to, int pitch) {{ pb_put(total, to, pitch); }}
}};
#endif"""

_HALF = """\
#ifndef __CUDA_HOST__
__device__ __forceinline__ void pb_mma_m16n8k16_{name}(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.{name}.{name}.f32 "
        "{{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
#endif"""

UNITS = {
    "pb_put": """\
// The first strip of a warp's sums, tiles of 16 by 8, goes to memory, ``pitch`` a row, and the others move up.
template <int down, int across> __device__ void pb_put(float (&total)[down][across][4], float* to, int pitch) {
    float* at = to + threadIdx.x % 32 / 4 * pitch + threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < across; ++m) {
        *(pb_words<float, 2>*)(at + m * 8) = {{total[0][m][0], total[0][m][1]}};
        *(pb_words<float, 2>*)(at + m * 8 + 8 * pitch) = {{total[0][m][2], total[0][m][3]}};
#pragma unroll
        for (int n = 1; n < down; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) total[n - 1][m][e] = total[n][m][e];
    }
}""",
    "pb_ldmatrix_x4": """\
// Four tiles of 8 by 8 halves of words, from shared memory: lane 8 n + r gives where row r of tile n is. The second: turned.
#ifndef __CUDA_HOST__
__device__ __forceinline__ void pb_ldmatrix_x4(unsigned (&words)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"((unsigned)__cvta_generic_to_shared(row)));
}
__device__ __forceinline__ void pb_ldmatrix_x4_trans(unsigned (&words)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"((unsigned)__cvta_generic_to_shared(row)));
}
#endif""",
    "pb_mma_m16n8k16_f16": _HALF.format(name="f16"),
    "pb_mma_m16n8k16_bf16": _HALF.format(name="bf16"),
    "pb_mma_m16n8k8_tf32": """\
// Operands are rounded to 11 bits, ties away from zero.
#ifndef __CUDA_HOST__
__device__ __forceinline__ unsigned pb_tf32(unsigned x) {
    unsigned found;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(found) : "f"(__uint_as_float(x)));
    return found;
}
__device__ __forceinline__ void pb_mma_m16n8k8_tf32(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(pb_tf32(a[0])), "r"(pb_tf32(a[1])), "r"(pb_tf32(a[2])), "r"(pb_tf32(a[3])),
          "r"(pb_tf32(b[0])), "r"(pb_tf32(b[1])));
}
#endif""",
    "pb_mma_m8n8k4_f64": """\
#ifndef __CUDA_HOST__
__device__ __forceinline__ void pb_mma_m8n8k4_f64(double (&d)[2], double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
}
#endif""",
    "pb_unit_f32": """\
template <int rows, int columns, int depth> using pb_unit_f32 = pb_fma<pb_f32, rows, columns, depth>;""",
    "pb_unit_f16": _HALVES.format(name="f16"),
    "pb_unit_bf16": _HALVES.format(name="bf16"),
    "pb_unit_tf32": """\
template <int rows_, int columns_, int depth_> struct pb_unit_tf32
#if __CUDA_ARCH__ < 800
    : pb_fma<pb_f32, rows_, columns_, depth_> {};
#else
{
    using stored = float;
    using sum = float;
    static constexpr int rows = rows_, columns = columns_, depth = depth_, pad_along = 4, pad_across = 8;
    static constexpr bool follows = true;
    static constexpr int down = rows / 64, across = columns / 16, strip = 16, strips = down, wide = columns / 2;
    sum total[down][across][4] = {};
    template <class A, class B> __device__ void multiply(const stored* left, const stored* right) {
        int lane = threadIdx.x % 32;
        left += A::place(threadIdx.x / 64 * (rows / 4) + lane / 4, lane % 4);
        right += B::place(threadIdx.x / 32 % 2 * wide + lane / 4, lane % 4);
#pragma unroll
        for (int k = 0; k < depth; k += 8) {
            unsigned p[down][4], q[across][2];
#pragma unroll
            for (int n = 0; n < down; ++n)
#pragma unroll
                for (int e = 0; e < 4; ++e) p[n][e] = __float_as_uint(left[A::place(n * 16 + e % 2 * 8, k + e / 2 * 4)]);
#pragma unroll
            for (int m = 0; m < across; ++m)
#pragma unroll
                for (int e = 0; e < 2; ++e) q[m][e] = __float_as_uint(right[B::place(m * 8, k + e * 4)]);
#pragma unroll
            for (int n = 0; n < down; ++n)
#pragma unroll
                for (int m = 0; m < across; ++m) pb_mma_m16n8k8_tf32(total[n][m], p[n], q[m]);
        }
    }
    __device__ void put(sum* to, int pitch) { pb_put(total, to, pitch); }
};
#endif""",
    "pb_unit_f64": """\
template <int rows_, int columns_, int depth_> struct pb_unit_f64
#if __CUDA_ARCH__ < 800
    : pb_fma<pb_f64, rows_, columns_, depth_> {};
#else
{
    using stored = double;
    using sum = double;
    static constexpr int rows = rows_, columns = columns_, depth = depth_, pad_along = 4, pad_across = 4;
    static constexpr bool follows = true;
    static constexpr int down = rows / 32, across = columns / 16, strip = 8, strips = down, wide = columns / 2;
    sum total[down][across][2] = {};
    template <class A, class B> __device__ void multiply(const stored* left, const stored* right) {
        int lane = threadIdx.x % 32;
        left += A::place(threadIdx.x / 64 * (rows / 4) + lane / 4, lane % 4);
        right += B::place(threadIdx.x / 32 % 2 * wide + lane / 4, lane % 4);
#pragma unroll
        for (int k = 0; k < depth; k += 4) {
            double p[down], q[across];
#pragma unroll
            for (int n = 0; n < down; ++n) p[n] = left[A::place(n * 8, k)];
#pragma unroll
            for (int m = 0; m < across; ++m) q[m] = right[B::place(m * 8, k)];
#pragma unroll
            for (int n = 0; n < down; ++n)
#pragma unroll
                for (int m = 0; m < across; ++m) pb_mma_m8n8k4_f64(total[n][m], p[n], q[m]);
        }
    }
    __device__ void put(sum* to, int pitch) {
        double* at = to + threadIdx.x % 32 / 4 * pitch + threadIdx.x % 4 * 2;
#pragma unroll
        for (int m = 0; m < across; ++m) {
            *(pb_words<double, 2>*)(at + m * 8) = {{total[0][m][0], total[0][m][1]}};
#pragma unroll
            for (int n = 1; n < down; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e) total[n - 1][m][e] = total[n][m][e];
        }
    }
};
#endif""",
}
"""The device functions of tensor cores and the units, in an order in which callees come first."""
