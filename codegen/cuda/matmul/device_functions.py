"""The device functions of matrix products: tiles in shared memory, of which each warp accumulates a part in registers.

A block of 256 threads computes a tile of the results. Its operands' elements are fetched to shared memory ``depth`` K
iterations at a time, the next ones while the current ones are multiplied: asynchronously (cp.async) where they have the same
layout in memory as in shared memory, else through registers. A *unit* multiplies for a warp: ``pb_fma`` by multiply-adds of
each thread, the units of ``tensor_cores`` by tensor cores. The sums leave through shared memory, so that the epilogue is
emitted once and its accesses are contiguous.
"""

from __future__ import annotations

PRODUCTS = {
    "pb_cp_async16": """\
// Sixteen bytes from memory to shared memory, zeros if not ``valid``, beside the thread; to be waited for in groups.
#ifndef __CUDA_HOST__
__device__ __forceinline__ void pb_cp_async16(void* shared, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
    unsigned to = (unsigned)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
#else
    *(uint4*)shared = valid ? *(const uint4*)from : make_uint4(0, 0, 0, 0);
#endif
}
__device__ __forceinline__ void pb_cp_async_commit() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int left> __device__ __forceinline__ void pb_cp_async_wait() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#endif
}
#endif""",
    "pb_dense": """\
// A matrix in memory, row by row.
template <class T> struct pb_dense {
    const T* base;
    long long step;
    __device__ T operator()(long long i, long long j) const { return base[i * step + j]; }
};
template <class> constexpr bool pb_is_dense = false;
template <class T> constexpr bool pb_is_dense<pb_dense<T>> = true;""",
    "pb_least": """\
__device__ __forceinline__ int pb_least(long long x, int y) { return x < y ? (int)x : y; }""",
    "pb_words": """\
// Neighbours in memory that are read and written at once.
template <class T, int count> struct alignas(count * sizeof(T)) pb_words { T x[count]; };""",
    "pb_side": """\
// One operand's part of a tile: ``side`` rows or columns by ``depth`` terms, from the row or column ``first`` of ``count`` on.
// ``along``: terms are neighbours in memory; they are in shared memory too if the unit takes them so.
template <class unit, bool is_left, bool along, class F> struct pb_side {
    using T = typename unit::stored;
    static constexpr int side = is_left ? unit::rows : unit::columns, depth = unit::depth;
    static constexpr bool is_dense = pb_is_dense<F>, by_rows = along && unit::follows, is_copied = is_dense && along == by_rows;
    static constexpr int pitch = by_rows ? depth + unit::pad_along : side + unit::pad_across;
    static constexpr int size = (by_rows ? side : depth) * pitch;
    // A thread has ``each`` elements, in groups of neighbours; a round of the block's threads goes so many rows or terms on.
    static constexpr int each = side * depth / 256, group = is_dense ? 16 / (int)sizeof(T) : 1;
    static constexpr int line = along ? depth : side, round = 256 * group / line;
    static_assert(each % group == 0 && 256 * group % line == 0 && size * sizeof(T) % 16 == 0, "threads have whole groups");
    const F& element;
    const T* from;
    long long first;
    int height, to;
    bool is_wide;
    T next[is_copied ? 1 : each];
    __device__ __forceinline__ pb_side(const F& element, long long first, long long count, long long start, long long terms)
        : element(element), from(nullptr), first(first), height(pb_least(count - first, side)), to(place(outer(0), term(0))),
          is_wide(false) {
        if constexpr (is_dense) {
            long long i = first + outer(0), p = start + term(0), step = element.step;
            from = element.base + (along ? i * step + p : p * step + i);
            is_wide = (unsigned long long)element.base % 16 == 0 && step % group == 0 && (along ? terms : count) % group == 0;
        }
    }
    // Where the thread's element n is in the tile.
    __device__ static int outer(int n) {
        int at = threadIdx.x * group;
        return along ? at / line + n / group * round : at % line + n % group;
    }
    __device__ static int term(int n) {
        int at = threadIdx.x * group;
        return along ? at % line + n % group : at / line + n / group * round;
    }
    __device__ static constexpr int place(int outer, int term) {
        return by_rows ? outer * pitch + term : term * pitch + outer;
    }
    __device__ int place(int n) const {
        return to + (along ? place(n / group * round, n % group) : place(n % group, n / group * round));
    }
    // Begins to fetch the next terms, from ``start`` on, of which there are ``left``.
    __device__ __forceinline__ void fetch(long long start, int left, T* tile) {
        if constexpr (is_dense) {
            if (is_wide && height == side && left == depth) all(tile);
            else some(left, tile);
            from += along ? depth : depth * element.step;
        } else {
#pragma unroll
            for (int n = 0; n < each; ++n) {
                long long i = first + outer(n), p = start + term(n);
                next[n] = T(0);
                if (outer(n) < height && term(n) < left) next[n] = is_left ? element(i, p) : element(p, i);
            }
        }
    }
    // Sixteen bytes at a time of a part that is all there.
    __device__ __forceinline__ void all(T* tile) {
#pragma unroll
        for (int n = 0; n < each; n += group) {
            const T* place_of = from + n / group * round * element.step;
            if constexpr (is_copied) {
                pb_cp_async16(tile + place(n), place_of, true);
            } else {
                pb_words<T, group> found = *(const pb_words<T, group>*)place_of;
#pragma unroll
                for (int m = 0; m < group; ++m) next[n + m] = found.x[m];
            }
        }
    }
    // Of any other part what is there, zeros for the rest.
    __device__ __forceinline__ void some(int left, T* tile) {
#pragma unroll (is_copied ? 1 : each)
        for (int n = 0; n < each; n += group) {
            bool valid = outer(n) < height && term(n) < left;
            if constexpr (is_dense) {
                const T* place_of = from + n / group * round * element.step;
                if constexpr (is_copied) {
                    if (is_wide) {
                        pb_cp_async16(tile + place(n), place_of, valid);
                    } else {
#pragma unroll 1
                        for (int m = 0; m < group; ++m) {
                            bool inside = along ? term(n) + m < left : outer(n) + m < height;
                            tile[place(n) + m] = valid && inside ? place_of[m] : T(0);
                        }
                    }
                } else {
                    pb_words<T, group> found = {};
                    if (is_wide) {
                        if (valid) found = *(const pb_words<T, group>*)place_of;
                    } else {
#pragma unroll
                        for (int m = 0; m < group; ++m)
                            if (valid && term(n) + m < left) found.x[m] = place_of[m];
                    }
#pragma unroll
                    for (int m = 0; m < group; ++m) next[n + m] = found.x[m];
                }
            }
        }
    }
    // What waits in registers goes to its place.
    __device__ __forceinline__ void keep(T* tile) const {
        if constexpr (!is_copied) {
#pragma unroll
            for (int n = 0; n < each; ++n) tile[place(n)] = next[n];
        }
    }
};""",
    "pb_f32": """\
// Elements as they are in memory, and the type of their sums.
struct pb_f32 { using stored = float; using sum = float; __device__ static float from(float x) { return x; } };""",
    "pb_f64": """\
// Elements as they are in memory, and the type of their sums.
struct pb_f64 { using stored = double; using sum = double; __device__ static double from(double x) { return x; } };""",
    "pb_f16": """\
// Elements as they are in memory, and the type of their sums.
struct pb_f16 {
    using stored = unsigned short; using sum = float;
    __device__ static float from(unsigned short x) { return pb_from_f16(x); }
};""",
    "pb_bf16": """\
// Elements as they are in memory, and the type of their sums.
struct pb_bf16 {
    using stored = unsigned short; using sum = float;
    __device__ static float from(unsigned short x) { return pb_from_bf16(x); }
};""",
    "pb_fma": """\
// Multiplies by multiply-adds: 4 by 2 warps share the tile, and each one's 4 by 8 threads its part, in groups of 16 bytes.
template <class kind, int rows_, int columns_, int depth_> struct pb_fma {
    using stored = typename kind::stored;
    using sum = typename kind::sum;
    static constexpr int rows = rows_, columns = columns_, depth = depth_, pad_along = 0, pad_across = 16 / (int)sizeof(stored);
    static constexpr bool follows = false;
    static constexpr int group = 16 / (int)sizeof(sum), down = rows / 16, across = columns / 16;
    static constexpr int strip = 4 * group, strips = down / group, wide = columns / 2;
    using words = pb_words<stored, group>;
    sum total[down][across] = {};
    template <class A, class B> __device__ void multiply(const stored* left, const stored* right) {
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        left += A::place(warp / 2 * (rows / 4) + lane / 8 * group, 0);
        right += B::place(warp % 2 * wide + lane % 8 * group, 0);
#pragma unroll (sizeof(sum) == 4 ? 8 : 2)
        for (int k = 0; k < depth; ++k) {
            words p[down / group], q[across / group];
#pragma unroll
            for (int n = 0; n < down / group; ++n) p[n] = *(const words*)(left + A::place(n * strip, k));
#pragma unroll
            for (int n = 0; n < across / group; ++n) q[n] = *(const words*)(right + B::place(n * 8 * group, k));
#pragma unroll
            for (int n = 0; n < down; ++n)
#pragma unroll
                for (int m = 0; m < across; ++m)
                    total[n][m] = fma(kind::from(p[n / group].x[n % group]), kind::from(q[m / group].x[m % group]), total[n][m]);
        }
    }
    // The first strip of the warp's sums goes to memory, ``pitch`` a row, and the others move up.
    __device__ void put(sum* to, int pitch) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < group; ++n)
#pragma unroll
            for (int m = 0; m < across / group; ++m) {
                pb_words<sum, group> found;
#pragma unroll
                for (int g = 0; g < group; ++g) found.x[g] = total[n][m * group + g];
                *(pb_words<sum, group>*)(to + (lane / 8 * group + n) * pitch + (lane % 8 + m * 8) * group) = found;
            }
#pragma unroll
        for (int n = group; n < down; ++n)
#pragma unroll
            for (int m = 0; m < across; ++m) total[n - group][m] = total[n][m];
    }
};""",
    "pb_product": """\
// The tile of a product that a block computes: ``each(i, j, sum)`` is called for every sum in it. Of ``parts`` of the terms it
// may take one alone, and keep its sums. Tiles follow each other by columns of eight, which read the same of the right operand.
template <class unit, bool left_along, bool right_along, class L, class R, class E>
__device__ void pb_product(const L& left, const R& right, E each, long long rows, long long columns, long long terms,
                           int tile, int part = 0, int parts = 1, typename unit::sum* kept = nullptr) {
    using A = pb_side<unit, true, left_along, L>;
    using B = pb_side<unit, false, right_along, R>;
    using T = typename unit::stored;
    using S = typename unit::sum;
    constexpr int stage = A::size + B::size, pitch = unit::wide + 8;
    constexpr int fetched = 2 * stage * sizeof(T), summed = 8 * unit::strip * pitch * sizeof(S);
    __align__(16) __shared__ unsigned char memory[fetched > summed ? fetched : summed];
    T* fetch = (T*)memory;
    int across = (int)((columns + unit::columns - 1) / unit::columns), down = (int)((rows + unit::rows - 1) / unit::rows);
    int above = tile / (8 * across) * 8, height = down - above < 8 ? down - above : 8;
    int y = above + tile % (8 * across) % height, x = tile % (8 * across) / height;
    long long share = ((terms + parts - 1) / parts + unit::depth - 1) / unit::depth * unit::depth, begin = part * share;
    long long end = terms - begin < share ? terms : begin + share;
    A a(left, (long long)y * unit::rows, rows, begin, terms);
    B b(right, (long long)x * unit::columns, columns, begin, terms);
    unit u;
    int steps = end > begin ? (int)((end - begin + unit::depth - 1) / unit::depth) : 0;
    int last = (int)(end - begin - (steps - 1LL) * unit::depth);
#pragma unroll 1
    for (int step = 0; step <= steps; ++step) {
        T *now = fetch + step % 2 * stage, *before = fetch + (step + 1) % 2 * stage;
        if (step < steps) {
            long long start = begin + (long long)step * unit::depth;
            int left = step + 1 < steps ? unit::depth : last;
            a.fetch(start, left, now);
            b.fetch(start, left, now + A::size);
            pb_cp_async_commit();
        }
        if (step > 0) u.template multiply<A, B>(before, before + A::size);
        if (step < steps) {
            a.keep(now);
            b.keep(now + A::size);
        }
        pb_cp_async_wait<0>();
        __syncthreads();
    }
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    S* sums = (S*)memory + warp * unit::strip * pitch;
#pragma unroll 1
    for (int strip = 0; strip < unit::strips; ++strip) {
        u.put(sums, pitch);
        __syncwarp();
#pragma unroll 4
        for (int n = lane; n < unit::strip * unit::wide; n += 32) {
            int r = warp / 2 * (unit::rows / 4) + strip * unit::strip + n / unit::wide;
            int c = warp % 2 * unit::wide + n % unit::wide;
            S sum = sums[n / unit::wide * pitch + n % unit::wide];
            long long i = (long long)y * unit::rows + r, j = (long long)x * unit::columns + c;
            if (i >= rows || j >= columns) continue;
            long long block = (y * across + x) * parts + part;
            if (parts > 1) kept[block * unit::rows * unit::columns + r * unit::columns + c] = sum;
            else each(i, j, sum);
        }
        __syncwarp();
    }
}""",
    "pb_tiles": """\
// How many tiles a product has.
template <class unit> __device__ int pb_tiles(long long rows, long long columns) {
    return (int)((rows + unit::rows - 1) / unit::rows * ((columns + unit::columns - 1) / unit::columns));
}""",
    "pb_joined": """\
// The sum in row i and column j of a product whose parts were kept, in their order.
template <class unit> __device__ typename unit::sum pb_joined(const typename unit::sum* kept, long long i, long long j,
                                                              long long columns, int parts) {
    constexpr long long size = unit::rows * unit::columns;
    long long across = (columns + unit::columns - 1) / unit::columns;
    kept += (i / unit::rows * across + j / unit::columns) * parts * size + i % unit::rows * unit::columns + j % unit::columns;
    typename unit::sum sum = kept[0];
    for (int part = 1; part < parts; ++part) sum += kept[part * size];
    return sum;
}""",
}
"""The device functions of matrix products, in an order in which callees come first."""
