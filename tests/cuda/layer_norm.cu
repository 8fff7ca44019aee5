// The first index of a thread, and how far the next one is, where all threads of a grid share out a loop.
__device__ long long pb_first() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ long long pb_step() { return (long long)gridDim.x * blockDim.x; }

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

// NaN wins; -0 is below +0.
template <class T> __device__ T pb_minimum(T x, T y) {
    if (x == y) return x == T(0) ? (T)-(-x - y) : x;
    return x < y || x != x ? x : y;
}

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

// A thread for each element.
extern "C" __global__ void k0_0(double* __restrict__ g, long long s1) {
#pragma unroll 4
    for (long long i = pb_first(); i < s1; i += pb_step()) {
        g[i] = 0.0;
    }
}

// A block for each row.
extern "C" __global__ void k0_1(
        const double* __restrict__ x, const double* __restrict__ c, double* __restrict__ h, long long s0,
        long long s1, int shared, double* __restrict__ g_parts) {
    extern __shared__ long long pb_shared[];
    double* g_own = shared ? (double*)(pb_shared) : g_parts + blockIdx.x * s1;
    for (long long n = threadIdx.x; n < s1; n += blockDim.x) {
        g_own[n] = 0.0;
    }
    __syncthreads();
    for (long long i2 = blockIdx.x; i2 < s0; i2 += gridDim.x) {
        pb_sum<double> add_part;
#pragma unroll 4
        for (long long j = threadIdx.x; j < s1; j += blockDim.x) {
            double x2 = x[i2 * s1 + j];
            add_part.add(x2);
        }
        double add_all = pb_block<pb_add<double>>(add_part.total());
#pragma unroll 4
        for (long long j2 = threadIdx.x; j2 < s1; j2 += blockDim.x) {
            double c2 = c[i2 * s1 + j2];
            // norm.py:3
            double x3 = x[i2 * s1 + j2];
            // norm.py:4
            double h2 = x3 - add_all;
            // norm.py:5
            double t = h2 * c2;
            double t2 = g_own[j2];
            double t3 = t2 + t;
            g_own[j2] = t3;
            h[i2 * s1 + j2] = h2;
        }
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
        for (long long k = threadIdx.x / 32; k < blocks; k += blockDim.x / 32) {
            all_part.add(g_parts[k * s1 + n3]);
        }
        double total = pb_warps<pb_add<double>>(all_part.total());
        if (threadIdx.x < 32 && base + threadIdx.x < s1) g[n3] = g[n3] + total;
    }
}
