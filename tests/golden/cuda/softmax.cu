#define PB_INF __longlong_as_double(0x7ff0000000000000LL)
#define PB_NAN __longlong_as_double(0x7ff8000000000000LL)

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

// NaN wins; +0 is above -0: of two equal ones, the bits that both have.
template <class T> __device__ T pb_maximum(T x, T y) {
#if __CUDA_ARCH__ >= 800 && !defined(__CUDA_HOST__)
    if constexpr (T(0.5) != T(0) && sizeof(T) == 4) {
        T found;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
        return found;
    }
#endif
    T equal = x;
    if constexpr (T(0.5) != T(0) && sizeof(T) >= 4) equal = pb_bitcast<T>(pb_bits(x) & pb_bits(y));
    return x == y ? equal : x > y || x != x ? x : y;
}

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k0(
        const float* __restrict__ x, float* __restrict__ p, long long s0, long long s1, int shared,
        float* __restrict__ row2_rows) {
    extern __shared__ uint4 pb_shared[];
    float* row2_own = shared ? (float*)(pb_shared) : row2_rows + blockIdx.x * s1;
    for (long long i = blockIdx.x; i < s0; i += gridDim.x) {
        float maximum_part = (float)(-PB_INF);
        bool whole = pb_is_whole<4>(&x[i * s1], 4);
        pb_packs<4>(4 * threadIdx.x, s1, 4 * blockDim.x, whole, [&](long long first, bool whole) {
            int count = whole ? 4 : pb_count<4>(s1 - first, 4);
            pb_pack<float, 4> x_4 = pb_read<4>(&x[i * s1 + first], count, whole);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                float x2 = x_4.at[k];
                if (k < count) maximum_part = pb_maximum(maximum_part, x2);
            }
        });
        float maximum_all = pb_block<pb_maximum<float>>(maximum_part);
        pb_sum<float> add_part;
        bool whole2 = pb_is_whole<4>(&x[i * s1], 4) && pb_is_whole<4>(row2_own, 4);
        pb_packs<4>(4 * threadIdx.x, s1, 4 * blockDim.x, whole2, [&](long long first2, bool whole2) {
            int count2 = whole2 ? 4 : pb_count<4>(s1 - first2, 4);
            pb_pack<float, 4> x_4_2 = pb_read<4>(&x[i * s1 + first2], count2, whole2);
            pb_pack<float, 4> row2_own_4;
            float add_4 = 0;
#pragma unroll
            for (int k2 = 0; k2 < 4; ++k2) {
                // softmax.py:4
                float x3 = x_4_2.at[k2];
                float d = x3 - maximum_all;
                // softmax.py:5
                float e = exp(d);
                row2_own_4.at[k2] = e;
                if (k2 < count2) add_4 += e;
            }
            add_part.add(add_4);
            pb_write(&row2_own[first2], row2_own_4, count2, whole2);
        });
        float add_all = pb_block<pb_add<float>>(add_part.total());
        bool whole3 = pb_is_whole<4>(row2_own, 4) && pb_is_whole<4>(&p[i * s1], 4);
        pb_packs<4>(4 * threadIdx.x, s1, 4 * blockDim.x, whole3, [&](long long first3, bool whole3) {
            int count3 = whole3 ? 4 : pb_count<4>(s1 - first3, 4);
            pb_pack<float, 4> row2_own_4_2 = pb_read<4>(&row2_own[first3], count3, whole3);
            pb_pack<float, 4> p_4;
#pragma unroll
            for (int k3 = 0; k3 < 4; ++k3) {
                // softmax.py:5
                float e2 = row2_own_4_2.at[k3];
                // softmax.py:6
                float p2 = e2 / add_all;
                p_4.at[k3] = p2;
            }
            pb_write(&p[i * s1 + first3], p_4, count3, whole3);
        });
    }
}
