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

// How many elements a pack has: ``width``, or what is left.
template <int N> __device__ int pb_count(long long left, int width) { return left < width ? (int)left : width; }

// A pack of so many elements; the rest of it are the first one again.
template <int N, class T> __device__ pb_pack<T, N> pb_read(const T* place, int count) {
    typedef typename pb_word<N * sizeof(T)>::type word;
    word found;
    if (pb_is_whole<N>(place, count)) {
        found = *(const word*)place;
    } else {
        pb_pack<T, N> each;
        for (int k = 0; k < N; ++k) each.at[k] = place[k < count ? k : 0];
        found = pb_bitcast<word>(each);
    }
    return pb_bitcast<pb_pack<T, N>>(found);
}

template <int N, class T> __device__ void pb_write(T* place, pb_pack<T, N> given, int count) {
    if (pb_is_whole<N>(place, count)) {
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
    T equal = x;
    if constexpr (T(0.5) != T(0) && sizeof(T) >= 4) equal = pb_bitcast<T>(pb_bits(x) | pb_bits(y));
    return x == y ? equal : x < y || x != x ? x : y;
}

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

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
}

// c = a @ b, the product of that number in a batch of so many; large tiles if these give 128 blocks work.
template <bool ta, bool tb, class T>
__device__ void pb_gemm(const T* a, const T* b, T* c, long long rows, long long summed, long long columns, long long number,
                        long long count) {
    constexpr int side = 512 / sizeof(T);
    long long large = (rows + side - 1) / side * ((columns + side - 1) / side), small = (rows + 31) / 32 * ((columns + 31) / 32);
    if (large * count >= 128) pb_gemm_tiles<ta, tb, side>(a, b, c, rows, summed, columns, number * large);
    else pb_gemm_tiles<ta, tb, 32>(a, b, c, rows, summed, columns, number * small);
}

// A block for each tile.
extern "C" __global__ void __launch_bounds__(256, 2) k0(
        const double* __restrict__ a, const double* __restrict__ b, double* __restrict__ c, long long s0,
        long long s1, long long s2) {
    // layer.py:8
    pb_gemm<false, false>(a, b, c, s0, s1, s2, 0, 1);
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
        for (long long first2 = 2 * threadIdx.x; first2 < s0; first2 += 2 * blockDim.x) {
            int count2 = pb_count<2>(s0 - first2, 2);
            pb_pack<double, 2> y_2 = pb_read<2>(&y[i2 * s0 + first2], count2);
            pb_pack<double, 2> b_2 = pb_read<2>(&b[first2], count2);
            pb_pack<double, 2> h_2 = pb_read<2>(&h[i2 * s0 + first2], count2);
            pb_pack<double, 2> d_own_2 = pb_read<2>(&d_own[first2], count2);
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
                double d2 = t + 1.0;
                double d3 = 1.0 - t;
                double d4 = d3 * d2;
                // layer.py:10 pullback(sub)
                double d5 = r + r;
                // layer.py:9 pullback(tanh)
                double d6 = d5 * d4;
                double t2 = d_own_2.at[k2];
                // layer.py:8 pullback(broadcast)
                double t3 = t2 + d6;
                d_own_2_2.at[k2] = t3;
                h_2_2.at[k2] = d6;
                if (k2 < count2) add_part2_2 += q;
            }
            add_part2.add(add_part2_2);
            pb_write(&d_own[first2], d_own_2_2, count2);
            pb_write(&h[i2 * s0 + first2], h_2_2, count2);
        }
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
        long long n3 = pb_minimum(base + threadIdx.x % 32, s0 - 1);
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

// A block for each tile.
extern "C" __global__ void __launch_bounds__(256, 2) k2(
        const double* __restrict__ a, const double* __restrict__ b, double* __restrict__ c, long long s0,
        long long s1, long long s2) {
    // layer.py:8 pullback(contract)
    pb_gemm<true, false>(a, b, c, s1, s0, s2, 0, 1);
}
