// The first index of a thread, and how far the next one is, where all threads of a grid share out a loop.
__device__ long long pb_first() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ long long pb_step() { return (long long)gridDim.x * blockDim.x; }

template <class T, class S> __device__ T pb_bitcast(S x) {
    static_assert(sizeof(T) == sizeof(S), "a bitcast keeps the size");
    union { S from; T to; } bits;
    bits.from = x;
    return bits.to;
}

__device__ unsigned pb_bits(float x) { return pb_bitcast<unsigned>(x); }
__device__ unsigned long long pb_bits(double x) { return pb_bitcast<unsigned long long>(x); }

// A sum that moves its partial sums up every 64 and every 4,096 terms, so that no chain of additions is long.
template <class T> struct pb_sum {
    T low = 0, middle = 0, high = 0;
    unsigned count = 0;
    __device__ void add(T x) {
        low += x;
        count += 1;
        if (count % 64 == 0) { middle += low; low = 0; }
        if (count % 4096 == 0) { high += middle; middle = 0; }
    }
    __device__ T total() const { return (high + middle) + low; }
};

// Elements that lie side by side, moved as one word where they may be: their number is a power of two, of at most 16 bytes.
template <int bytes> struct pb_word { typedef uint4 type; };
template <> struct pb_word<8> { typedef uint2 type; };
template <> struct pb_word<4> { typedef unsigned type; };
template <> struct pb_word<2> { typedef unsigned short type; };
template <class T, int N> struct alignas(N * sizeof(T)) pb_pack { T at[N]; };
template <int N, class T> __device__ bool pb_is_whole(const T* place, int count) {
    return count == N && (unsigned long long)place % (N * sizeof(T)) == 0;
}

// The turns of a thread, each of ``size`` elements. ``each`` is there twice: for packs that are whole, of which it need not ask
// how many elements they have and where they lie, and for others.
template <int size, class F> __device__ void pb_packs(long long first, long long end, long long step, bool whole, F each) {
    if (whole)
        for (; first + size <= end; first += step) each(first, true);
    for (; first < end; first += step) each(first, false);
}

// How many elements a pack has: ``width``, or what is left.
template <int N> __device__ int pb_count(long long left, int width) { return left < width ? (int)left : width; }

// A pack of so many elements; the rest of it are the first one again. ``whole``: it is known to lie as a word does.
template <int N, class T> __device__ pb_pack<T, N> pb_read(const T* place, int count, bool whole = false) {
    typedef typename pb_word<N * sizeof(T)>::type word;
    word found;
    if (whole || pb_is_whole<N>(place, count)) {
        found = *(const word*)place;
    } else {
        pb_pack<T, N> each;
        for (int k = 0; k < N; ++k) each.at[k] = place[k < count ? k : 0];
        found = pb_bitcast<word>(each);
    }
    return pb_bitcast<pb_pack<T, N>>(found);
}

template <int N, class T> __device__ void pb_write(T* place, pb_pack<T, N> given, int count, bool whole = false) {
    if (whole || pb_is_whole<N>(place, count)) {
        typedef typename pb_word<N * sizeof(T)>::type word;
        *(word*)place = pb_bitcast<word>(given);
        return;
    }
    for (int k = 0; k < N; ++k)
        if (k < count) place[k] = given.at[k];
}

template <class T> __device__ T pb_down(T x, int distance) { return (T)__shfl_down_sync(0xffffffffu, x, distance); }

// The combination of what all threads of a block give, in a fixed tree: lanes of a warp by halves, then the warps in order.
template <auto combine, class T> __device__ T pb_block(T x) {
    __shared__ T warps[32];
    for (int distance = 16; distance; distance /= 2) x = combine(x, pb_down(x, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    T all = warps[0];
    for (int warp = 1; warp < blockDim.x / 32; ++warp) all = combine(all, warps[warp]);
    return all;
}

// The combination of what the same lane of all warps gives, the warps in order.
template <auto combine, class T> __device__ T pb_warps(T x) {
    __shared__ T given[1024];
    __syncthreads();
    given[threadIdx.x] = x;
    __syncthreads();
    T all = given[threadIdx.x % 32];
    for (int k = threadIdx.x % 32 + 32; k < blockDim.x; k += 32) all = combine(all, given[k]);
    return all;
}

// NaN wins; -0 is below +0: of two equal ones, the bits that one has.
template <class T> __device__ T pb_minimum(T x, T y) {
#if __CUDA_ARCH__ >= 800 && !defined(__CUDA_HOST__)
    if constexpr (T(0.5) != T(0) && sizeof(T) == 4) {
        T found;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
        return found;
    }
#endif
    T equal = x;
    if constexpr (T(0.5) != T(0) && sizeof(T) >= 4) equal = pb_bitcast<T>(pb_bits(x) | pb_bits(y));
    return x == y ? equal : x < y || x != x ? x : y;
}

template <class T> __device__ T pb_sech2(T x) {
    T e = exp(T(-2) * fabs(x)), inverse = T(1) / (T(1) + e);
    return T(4) * e * inverse * inverse;
}

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

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
#endif

// A matrix in memory, row by row.
template <class T> struct pb_dense {
    const T* base;
    long long step;
    __device__ T operator()(long long i, long long j) const { return base[i * step + j]; }
};
template <class> constexpr bool pb_is_dense = false;
template <class T> constexpr bool pb_is_dense<pb_dense<T>> = true;

__device__ __forceinline__ int pb_least(long long x, int y) { return x < y ? (int)x : y; }

// Neighbours in memory that are read and written at once.
template <class T, int count> struct alignas(count * sizeof(T)) pb_words { T x[count]; };

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
};

// Elements as they are in memory, and the type of their sums.
struct pb_f64 { using stored = double; using sum = double; __device__ static double from(double x) { return x; } };

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
};

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
}

// The sum in row i and column j of a product whose parts were kept, in their order.
template <class unit> __device__ typename unit::sum pb_joined(const typename unit::sum* kept, long long i, long long j,
                                                              long long columns, int parts) {
    constexpr long long size = unit::rows * unit::columns;
    long long across = (columns + unit::columns - 1) / unit::columns;
    kept += (i / unit::rows * across + j / unit::columns) * parts * size + i % unit::rows * unit::columns + j % unit::columns;
    typename unit::sum sum = kept[0];
    for (int part = 1; part < parts; ++part) sum += kept[part * size];
    return sum;
}

#ifndef __CUDA_HOST__
__device__ __forceinline__ void pb_mma_m8n8k4_f64(double (&d)[2], double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
}
#endif

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
#endif

// A thread for each sum of a small product.
extern "C" __global__ void k0_0(
        const double* __restrict__ x0, const double* __restrict__ x1, double* __restrict__ x2, long long s0,
        long long s1, long long s2) {
    for (long long n = pb_first(); n < s0 * s2; n += pb_step()) {
        long long i = n / s2, j = n % s2;
        double sum = 0;
        for (long long p = 0; p < s1; ++p) {
            // layer.py:8
            double t = x0[i * s1 + p];
            double t2 = x1[p * s2 + j];
            sum = fma(t, t2, sum);
        }
        x2[i * s2 + j] = sum;
    }
}

// A block for each large tile of the product.
extern "C" __global__ void __launch_bounds__(256, 2) k0_1(
        const double* __restrict__ x0, const double* __restrict__ x1, double* __restrict__ x2, long long s0,
        long long s1, long long s2) {
    using unit = pb_unit_f64<128, 64, 8>;
    // layer.py:8
    pb_dense<double> left{x0, s1};
    pb_dense<double> right{x1, s2};
    auto each = [&](long long i, long long j, double sum) {
        x2[i * s2 + j] = sum;
    };
    pb_product<unit, true, false>(left, right, each, s0, s2, s1, blockIdx.x);
}

// A block for each small tile of the product, or for each part of the terms of one.
extern "C" __global__ void __launch_bounds__(256, 3) k0_2(
        const double* __restrict__ x0, const double* __restrict__ x1, double* __restrict__ x2, long long s0,
        long long s1, long long s2, double* __restrict__ kept, int parts) {
    using unit = pb_unit_f64<64, 32, 16>;
    // layer.py:8
    pb_dense<double> left{x0, s1};
    pb_dense<double> right{x1, s2};
    auto each = [&](long long i, long long j, double sum) {
        x2[i * s2 + j] = sum;
    };
    pb_product<unit, true, false>(left, right, each, s0, s2, s1, blockIdx.x / parts, blockIdx.x % parts, parts, kept);
}

// A thread for each sum joins its parts.
extern "C" __global__ void k0_4(
        double* __restrict__ x2, long long s0, long long s1, long long s2, const double* __restrict__ kept,
        int parts) {
    using unit = pb_unit_f64<64, 32, 16>;
    for (long long n2 = pb_first(); n2 < s0 * s2; n2 += pb_step()) {
        long long i = n2 / s2, j = n2 % s2;
        double sum = pb_joined<unit>(kept, i, j, s2, parts);
        x2[i * s2 + j] = sum;
    }
}

// A thread for each element.
extern "C" __global__ void k1_0(double* __restrict__ d, long long s0, int width) {
    for (long long first = width * pb_first(); first < s0; first += width * pb_step()) {
        int count = pb_count<2>(s0 - first, width);
        pb_pack<double, 2> d_2;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            d_2.at[k] = 0.0;
        }
        pb_write(&d[first], d_2, count);
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k1_1(
        const double* __restrict__ b, double* __restrict__ h, const double* __restrict__ y, long long s0,
        long long s1, int shared, double* __restrict__ d_parts, double* __restrict__ add_parts) {
    extern __shared__ uint4 pb_shared[];
    double* d_own = shared ? (double*)(pb_shared) : d_parts + blockIdx.x * s0;
    for (long long n = threadIdx.x; n < s0; n += blockDim.x) {
        d_own[n] = 0.0;
    }
    __syncthreads();
    pb_sum<double> add_part;
    for (long long i2 = blockIdx.x; i2 < s1; i2 += gridDim.x) {
        pb_sum<double> add_part2;
        bool whole = pb_is_whole<2>(&y[i2 * s0], 2) && pb_is_whole<2>(b, 2) && pb_is_whole<2>(&h[i2 * s0], 2) && pb_is_whole<2>(d_own, 2);
        pb_packs<2>(2 * threadIdx.x, s0, 2 * blockDim.x, whole, [&](long long first2, bool whole) {
            int count2 = whole ? 2 : pb_count<2>(s0 - first2, 2);
            pb_pack<double, 2> y_2 = pb_read<2>(&y[i2 * s0 + first2], count2, whole);
            pb_pack<double, 2> b_2 = pb_read<2>(&b[first2], count2, whole);
            pb_pack<double, 2> h_2 = pb_read<2>(&h[i2 * s0 + first2], count2, whole);
            pb_pack<double, 2> d_own_2 = pb_read<2>(&d_own[first2], count2, whole);
            pb_pack<double, 2> d_own_2_2;
            pb_pack<double, 2> h_2_2;
            double add_part2_2 = 0;
#pragma unroll
            for (int k2 = 0; k2 < 2; ++k2) {
                double y2 = y_2.at[k2];
                double b2 = b_2.at[k2];
                // layer.py:8
                double h2 = h_2.at[k2];
                double z = h2 + b2;
                // layer.py:9
                double t = tanh(z);
                // layer.py:10
                double r = t - y2;
                double q = r * r;
                // layer.py:9 pullback(tanh)
                double d2 = pb_sech2(z);
                // layer.py:10 pullback(sub)
                double d3 = r + r;
                // layer.py:9 pullback(tanh)
                double d4 = d3 * d2;
                double t2 = d_own_2.at[k2];
                // layer.py:8 pullback(broadcast)
                double t3 = t2 + d4;
                d_own_2_2.at[k2] = t3;
                h_2_2.at[k2] = d4;
                if (k2 < count2) add_part2_2 += q;
            }
            add_part2.add(add_part2_2);
            pb_write(&d_own[first2], d_own_2_2, count2, whole);
            pb_write(&h[i2 * s0 + first2], h_2_2, count2, whole);
        });
        double add_all2 = pb_block<pb_add<double>>(add_part2.total());
        add_part.add(add_all2);
    }
    __syncthreads();
    if (shared) {
        for (long long n2 = threadIdx.x; n2 < s0; n2 += blockDim.x) {
            d_parts[blockIdx.x * s0 + n2] = d_own[n2];
        }
    }
    if (threadIdx.x == 0) {
        add_parts[blockIdx.x] = add_part.total();
    }
}

// A block adds up what all blocks found, 32 elements of d at a time, side by side.
extern "C" __global__ void k1_2(
        double* __restrict__ d, long long s0, const double* __restrict__ d_parts, long long blocks) {
    for (long long base = blockIdx.x * 32; base < s0; base += gridDim.x * 32) {
        long long n3 = pb_minimum<long long>(base + threadIdx.x % 32, s0 - 1);
        pb_sum<double> all_part;
        for (long long k3 = threadIdx.x / 32; k3 < blocks; k3 += blockDim.x / 32) {
            all_part.add(d_parts[k3 * s0 + n3]);
        }
        double total2 = pb_warps<pb_add<double>>(all_part.total());
        if (threadIdx.x < 32 && base + threadIdx.x < s0) d[n3] = d[n3] + total2;
    }
}

// One block joins what all blocks found: t4.
extern "C" __global__ void k1_3(double* __restrict__ total, const double* __restrict__ add_parts, long long blocks) {
    pb_sum<double> add_part3;
    for (long long k4 = threadIdx.x; k4 < blocks; k4 += blockDim.x) {
        add_part3.add(add_parts[k4]);
    }
    double add_all3 = pb_block<pb_add<double>>(add_part3.total());
    if (threadIdx.x == 0) {
        *total = add_all3;
    }
}

// A thread for each sum of a small product.
extern "C" __global__ void k2_0(
        const double* __restrict__ x0, const double* __restrict__ x1, double* __restrict__ x2, long long s0,
        long long s1, long long s2) {
    for (long long n = pb_first(); n < s1 * s2; n += pb_step()) {
        long long i = n / s2, j = n % s2;
        double sum = 0;
        for (long long p = 0; p < s0; ++p) {
            // layer.py:8 pullback(contract)
            double t = x0[p * s1 + i];
            double t2 = x1[p * s2 + j];
            sum = fma(t, t2, sum);
        }
        x2[i * s2 + j] = sum;
    }
}

// A block for each large tile of the product.
extern "C" __global__ void __launch_bounds__(256, 2) k2_1(
        const double* __restrict__ x0, const double* __restrict__ x1, double* __restrict__ x2, long long s0,
        long long s1, long long s2) {
    using unit = pb_unit_f64<128, 64, 8>;
    // layer.py:8 pullback(contract)
    pb_dense<double> left{x0, s1};
    pb_dense<double> right{x1, s2};
    auto each = [&](long long i, long long j, double sum) {
        x2[i * s2 + j] = sum;
    };
    pb_product<unit, false, false>(left, right, each, s1, s2, s0, blockIdx.x);
}

// A block for each small tile of the product, or for each part of the terms of one.
extern "C" __global__ void __launch_bounds__(256, 3) k2_2(
        const double* __restrict__ x0, const double* __restrict__ x1, double* __restrict__ x2, long long s0,
        long long s1, long long s2, double* __restrict__ kept, int parts) {
    using unit = pb_unit_f64<64, 32, 16>;
    // layer.py:8 pullback(contract)
    pb_dense<double> left{x0, s1};
    pb_dense<double> right{x1, s2};
    auto each = [&](long long i, long long j, double sum) {
        x2[i * s2 + j] = sum;
    };
    pb_product<unit, false, false>(left, right, each, s1, s2, s0, blockIdx.x / parts, blockIdx.x % parts, parts, kept);
}

// A thread for each sum joins its parts.
extern "C" __global__ void k2_4(
        double* __restrict__ x2, long long s0, long long s1, long long s2, const double* __restrict__ kept,
        int parts) {
    using unit = pb_unit_f64<64, 32, 16>;
    for (long long n2 = pb_first(); n2 < s1 * s2; n2 += pb_step()) {
        long long i = n2 / s2, j = n2 % s2;
        double sum = pb_joined<unit>(kept, i, j, s2, parts);
        x2[i * s2 + j] = sum;
    }
}
