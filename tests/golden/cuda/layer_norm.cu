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

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

// A thread for each element.
extern "C" __global__ void k0_0(double* __restrict__ g, long long s1, int width) {
    for (long long first = width * pb_first(); first < s1; first += width * pb_step()) {
        int count = pb_count<2>(s1 - first, width);
        pb_pack<double, 2> g_2;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            g_2.at[k] = 0.0;
        }
        pb_write(&g[first], g_2, count);
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k0_1(
        const double* __restrict__ x, const double* __restrict__ c, double* __restrict__ h, long long s0,
        long long s1, int shared, double* __restrict__ g_parts) {
    extern __shared__ uint4 pb_shared[];
    double* g_own = shared ? (double*)(pb_shared) : g_parts + blockIdx.x * s1;
    for (long long n = threadIdx.x; n < s1; n += blockDim.x) {
        g_own[n] = 0.0;
    }
    __syncthreads();
    for (long long i2 = blockIdx.x; i2 < s0; i2 += gridDim.x) {
        pb_sum<double> add_part;
        bool whole = pb_is_whole<2>(&x[i2 * s1], 2);
        pb_packs<2>(2 * threadIdx.x, s1, 2 * blockDim.x, whole, [&](long long first2, bool whole) {
            int count2 = whole ? 2 : pb_count<2>(s1 - first2, 2);
            pb_pack<double, 2> x_2 = pb_read<2>(&x[i2 * s1 + first2], count2, whole);
            double add_2 = 0;
#pragma unroll
            for (int k2 = 0; k2 < 2; ++k2) {
                double x2 = x_2.at[k2];
                if (k2 < count2) add_2 += x2;
            }
            add_part.add(add_2);
        });
        double add_all = pb_block<pb_add<double>>(add_part.total());
        bool whole2 = pb_is_whole<2>(&c[i2 * s1], 2) && pb_is_whole<2>(&x[i2 * s1], 2) && pb_is_whole<2>(g_own, 2) && pb_is_whole<2>(&h[i2 * s1], 2);
        pb_packs<2>(2 * threadIdx.x, s1, 2 * blockDim.x, whole2, [&](long long first3, bool whole2) {
            int count3 = whole2 ? 2 : pb_count<2>(s1 - first3, 2);
            pb_pack<double, 2> c_2 = pb_read<2>(&c[i2 * s1 + first3], count3, whole2);
            pb_pack<double, 2> x_2_2 = pb_read<2>(&x[i2 * s1 + first3], count3, whole2);
            pb_pack<double, 2> g_own_2 = pb_read<2>(&g_own[first3], count3, whole2);
            pb_pack<double, 2> g_own_2_2;
            pb_pack<double, 2> h_2;
#pragma unroll
            for (int k3 = 0; k3 < 2; ++k3) {
                double c2 = c_2.at[k3];
                // norm.py:3
                double x3 = x_2_2.at[k3];
                // norm.py:4
                double h2 = x3 - add_all;
                // norm.py:5
                double t = h2 * c2;
                double t2 = g_own_2.at[k3];
                double t3 = t2 + t;
                g_own_2_2.at[k3] = t3;
                h_2.at[k3] = h2;
            }
            pb_write(&g_own[first3], g_own_2_2, count3, whole2);
            pb_write(&h[i2 * s1 + first3], h_2, count3, whole2);
        });
    }
    __syncthreads();
    if (shared) {
        for (long long n2 = threadIdx.x; n2 < s1; n2 += blockDim.x) {
            g_parts[blockIdx.x * s1 + n2] = g_own[n2];
        }
    }
}

// A block adds up what all blocks found, 32 elements of g at a time, side by side.
extern "C" __global__ void k0_2(
        double* __restrict__ g, long long s1, const double* __restrict__ g_parts, long long blocks) {
    for (long long base = blockIdx.x * 32; base < s1; base += gridDim.x * 32) {
        long long n3 = pb_minimum<long long>(base + threadIdx.x % 32, s1 - 1);
        pb_sum<double> all_part;
        for (long long k4 = threadIdx.x / 32; k4 < blocks; k4 += blockDim.x / 32) {
            all_part.add(g_parts[k4 * s1 + n3]);
        }
        double total = pb_warps<pb_add<double>>(all_part.total());
        if (threadIdx.x < 32 && base + threadIdx.x < s1) g[n3] = g[n3] + total;
    }
}
