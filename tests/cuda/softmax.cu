#define PB_INF __longlong_as_double(0x7ff0000000000000LL)
#define PB_NAN __longlong_as_double(0x7ff8000000000000LL)

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

// NaN wins; +0 is above -0.
template <class T> __device__ T pb_maximum(T x, T y) {
    if (x == y) return x == T(0) ? (T)(x + y) : x;
    return x > y || x != x ? x : y;
}

template <class T> __device__ T pb_add(T x, T y) {
    if constexpr (T(0.5) == T(0)) return (T)((unsigned long long)x + (unsigned long long)y);
    else return x + y;
}

// A block for each row.
extern "C" __global__ void k0(
        const float* __restrict__ x, float* __restrict__ p, long long s0, long long s1, int shared,
        float* __restrict__ row2_rows) {
    extern __shared__ long long pb_shared[];
    float* row2_own = shared ? (float*)(pb_shared) : row2_rows + blockIdx.x * s1;
    for (long long i = blockIdx.x; i < s0; i += gridDim.x) {
        float maximum_part = (float)(-PB_INF);
#pragma unroll 4
        for (long long j = threadIdx.x; j < s1; j += blockDim.x) {
            float x2 = x[i * s1 + j];
            maximum_part = pb_maximum(maximum_part, x2);
        }
        float maximum_all = pb_block<pb_maximum<float>>(maximum_part);
        pb_sum<float> add_part;
        for (long long j2 = threadIdx.x; j2 < s1; j2 += blockDim.x) {
            // softmax.py:4
            float x3 = x[i * s1 + j2];
            float d = x3 - maximum_all;
            // softmax.py:5
            float e = exp(d);
            row2_own[j2] = e;
            add_part.add(e);
        }
        float add_all = pb_block<pb_add<float>>(add_part.total());
#pragma unroll 4
        for (long long j3 = threadIdx.x; j3 < s1; j3 += blockDim.x) {
            // softmax.py:5
            float e2 = row2_own[j3];
            // softmax.py:6
            float p2 = e2 / add_all;
            p[i * s1 + j3] = p2;
        }
    }
}
