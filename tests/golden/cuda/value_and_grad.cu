// The first index of a thread, and how far the next one is, where all threads of a grid share out a loop.
__device__ long long pb_first() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ long long pb_step() { return (long long)gridDim.x * blockDim.x; }

template <class T, class S> __device__ T pb_bitcast(S x) {
    static_assert(sizeof(T) == sizeof(S), "a bitcast keeps the size");
    union { S from; T to; } bits;
    bits.from = x;
    return bits.to;
}

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

template <class T> __device__ T pb_logaddexp(T x, T y) {
    if (x == y) return x + T(0.6931471805599453);
    T difference = x - y;
    if (difference > T(0)) return x + log1p(exp(-difference));
    return difference <= T(0) ? y + log1p(exp(difference)) : difference;
}

template <class T> __device__ T pb_expit(T x) {
    if (x >= T(0)) return T(1) / (T(1) + exp(-x));
    T e = exp(x);
    return e / (T(1) + e);
}

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

// A thread for each element.
extern "C" __global__ void k0_0(
        const double* __restrict__ w, const double* __restrict__ x, const double* __restrict__ y,
        double* __restrict__ d, long long s0, int width, double* __restrict__ add_parts) {
    pb_sum<double> add_part;
    for (long long first = width * pb_first(); first < s0; first += width * pb_step()) {
        int count = pb_count<2>(s0 - first, width);
        pb_pack<double, 2> x_2 = pb_read<2>(&x[first], count);
        pb_pack<double, 2> w_2 = pb_read<2>(&w[first], count);
        pb_pack<double, 2> y_2 = pb_read<2>(&y[first], count);
        pb_pack<double, 2> d_2;
        double add_2 = 0;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            double x2 = x_2.at[k];
            double w2 = w_2.at[k];
            // loss.py:5
            double z = w2 * x2;
            double y2 = y_2.at[k];
            // loss.py:6
            double yz = y2 * z;
            double soft = pb_logaddexp(0.0, z);
            double each = soft - yz;
            // loss.py:6 pullback(logaddexp)
            bool d2 = z != z;
            bool d3 = z == 0.0;
            bool d4 = d3 & d2;
            double d5 = d4 ? 0.0 : z;
            double d6 = pb_expit(d5);
            // loss.py:5 pullback(mul)
            double d7 = d6 - y2;
            double d8 = d7 * x2;
            d_2.at[k] = d8;
            if (k < count) add_2 += each;
        }
        add_part.add(add_2);
        pb_write(&d[first], d_2, count);
    }
    double add_all = pb_block<pb_add<double>>(add_part.total());
    if (threadIdx.x == 0) {
        add_parts[blockIdx.x] = add_all;
    }
}

// One block joins what all blocks found: t.
extern "C" __global__ void k0_1(double* __restrict__ total, const double* __restrict__ add_parts, long long blocks) {
    pb_sum<double> add_part2;
    for (long long k2 = threadIdx.x; k2 < blocks; k2 += blockDim.x) {
        add_part2.add(add_parts[k2]);
    }
    double add_all2 = pb_block<pb_add<double>>(add_part2.total());
    if (threadIdx.x == 0) {
        *total = add_all2;
    }
}
