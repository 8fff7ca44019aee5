template <class T, class S> __device__ T pb_bitcast(S x) {
    static_assert(sizeof(T) == sizeof(S), "a bitcast keeps the size");
    union { S from; T to; } bits;
    bits.from = x;
    return bits.to;
}

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

// NaN and floats out of range give the least int or long long; other integer types convert through those and wrap.
template <class T, class S> __device__ T pb_cast(S x) {
    constexpr bool is_signed = T(-1) < T(0), rounds = S(0.5) != S(0) && S(0.5) != S(1) && T(0.5) == T(0);
    if constexpr (!rounds) {
        return T(x);
    } else if constexpr (sizeof(T) < 4 || (sizeof(T) == 4 && is_signed)) {
        double wide = x;
        return T(wide > -2147483649.0 && wide < 2147483648.0 ? (int)wide : -2147483647 - 1);
    } else {
        double wide = x;
        bool high = !is_signed && sizeof(T) == 8 && wide >= 9223372036854775808.0;
        if (high) wide -= 9223372036854775808.0;
        long long least = -9223372036854775807LL - 1;
        long long whole = wide >= -9223372036854775808.0 && wide < 9223372036854775808.0 ? (long long)wide : least;
        return T(high ? whole ^ least : whole);
    }
}

// A complex number as it lies in memory, and what numbers of both kinds have in common.
template <class R> struct pb_complex { R re, im; };
template <class T> struct pb_parts {
    typedef T real;
    static __device__ T of(T x) { return x; }
};
template <class R> struct pb_parts<pb_complex<R>> {
    typedef R real;
    static __device__ pb_complex<R> of(R x) { return {x, R(0)}; }
};
template <class R> __device__ pb_complex<R> operator+(pb_complex<R> x, pb_complex<R> y) { return {x.re + y.re, x.im + y.im}; }
template <class R> __device__ pb_complex<R> operator-(pb_complex<R> x, pb_complex<R> y) { return {x.re - y.re, x.im - y.im}; }
template <class R> __device__ pb_complex<R> operator*(pb_complex<R> x, pb_complex<R> y) {
    return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}
template <class R> __device__ pb_complex<R> operator/(pb_complex<R> x, pb_complex<R> y) {
    if (fabs(y.re) >= fabs(y.im)) {
        R ratio = y.im / y.re, scale = y.re + y.im * ratio;
        return {(x.re + x.im * ratio) / scale, (x.im - x.re * ratio) / scale};
    }
    R ratio = y.re / y.im, scale = y.re * ratio + y.im;
    return {(x.re * ratio + x.im) / scale, (x.im * ratio - x.re) / scale};
}
template <class T> __device__ T pb_re(T x) { return x; }
template <class R> __device__ R pb_re(pb_complex<R> x) { return x.re; }
template <class T> __device__ T pb_im(T) { return T(0); }
template <class R> __device__ R pb_im(pb_complex<R> x) { return x.im; }
template <class T> __device__ T pb_conj(T x) { return x; }
template <class R> __device__ pb_complex<R> pb_conj(pb_complex<R> x) { return {x.re, -x.im}; }
template <class T> __device__ T pb_reach(T x) { return fabs(x); }
template <class R> __device__ R pb_reach(pb_complex<R> x) { return fabs(x.re) + fabs(x.im); }
template <class T> __device__ T pb_square(T x) { return x * x; }
template <class R> __device__ R pb_square(pb_complex<R> x) { return x.re * x.re + x.im * x.im; }
template <class T> __device__ T pb_times(T x, T y) { return x * y; }
template <class R> __device__ pb_complex<R> pb_times(pb_complex<R> x, R y) { return {x.re * y, x.im * y}; }
template <class T> __device__ T pb_over(T x, T y) { return x / y; }
template <class R> __device__ pb_complex<R> pb_over(pb_complex<R> x, R y) { return {x.re / y, x.im / y}; }
// The sum of what the lanes of a warp give, in all of them.
template <class T> __device__ T pb_lanes(T x) {
    for (int distance = 16; distance; distance /= 2) x = x + (T)__shfl_xor_sync(0xffffffffu, x, distance);
    return x;
}
template <class R> __device__ pb_complex<R> pb_lanes(pb_complex<R> x) { return {pb_lanes(x.re), pb_lanes(x.im)}; }

// a = p l u; info: 0, or the first place of the diagonal of u that is 0. Equal pivots: the first.
template <class T> __device__ void pb_getrf(int m, int n, T* a, int ld, int* pivots, int* info) {
    typedef typename pb_parts<T>::real R;
    __shared__ int chosen;
    __syncthreads();
    if (threadIdx.x == 0) *info = 0;
    int least = m < n ? m : n;
    for (int k = 0; k < least; ++k) {
        if (threadIdx.x < 32) {
            R best = -1;
            int at = k;
            for (int i = k + threadIdx.x; i < m; i += 32) {
                R reach = pb_reach(a[i + k * ld]);
                if (reach > best) { best = reach; at = i; }
            }
            for (int distance = 16; distance; distance /= 2) {
                R other = __shfl_down_sync(0xffffffffu, best, distance);
                int place = __shfl_down_sync(0xffffffffu, at, distance);
                if (other > best || (other == best && place < at)) { best = other; at = place; }
            }
            if (threadIdx.x == 0) {
                chosen = at;
                pivots[k] = at + 1;
                if (best == 0 && *info == 0) *info = k + 1;
            }
        }
        __syncthreads();
        int p = chosen;
        if (p != k)
            for (int j = threadIdx.x; j < n; j += blockDim.x) {
                T x = a[k + j * ld];
                a[k + j * ld] = a[p + j * ld];
                a[p + j * ld] = x;
            }
        __syncthreads();
        T pivot = a[k + k * ld];
        if (pb_reach(pivot) != 0)
            for (int i = k + 1 + threadIdx.x; i < m; i += blockDim.x) a[i + k * ld] = a[i + k * ld] / pivot;
        __syncthreads();
        int rows = m - k - 1, rest = rows * (n - k - 1);
        for (int e = threadIdx.x; e < rest; e += blockDim.x) {
            int i = k + 1 + e % rows, j = k + 1 + e / rows;
            a[i + j * ld] = a[i + j * ld] - a[i + k * ld] * a[k + j * ld];
        }
        __syncthreads();
    }
    __syncthreads();
}

// x = x op(a)^-1, of m rows; op(a) is upper if it goes forward.
template <class T>
__device__ void pb_trsm(char, char triangle, char op, char diagonal, int m, int n, const T* a, int ld, T* x, int ldx) {
    bool turned = op == 'T', forward = (triangle == 'U') != turned;
    __syncthreads();
    for (int step = 0; step < n; ++step) {
        int k = forward ? step : n - 1 - step, first = forward ? k + 1 : 0, rest = n - 1 - step;
        if (diagonal == 'N')
            for (int i = threadIdx.x; i < m; i += blockDim.x) x[i + k * ldx] = x[i + k * ldx] / a[k + k * ld];
        __syncthreads();
        for (int e = threadIdx.x; e < rest * m; e += blockDim.x) {
            int i = e % m, j = first + e / m;
            x[i + j * ldx] = x[i + j * ldx] - x[i + k * ldx] * (turned ? a[j + k * ld] : a[k + j * ld]);
        }
        __syncthreads();
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k0_0(
        const double* __restrict__ x0, double* __restrict__ x3, long long s0, long long s1) {
    for (long long z = blockIdx.x; z < s0; z += gridDim.x) {
        const double* x0_z = x0 + z * (s1 * s1);
        double* x3_z = x3 + z * (s1 * s1);
        for (long long i = threadIdx.x; i < s1; i += blockDim.x) {
            for (long long j = 0; j < s1; ++j) {
                // fit.py:3
                double t = x0_z[j * s1 + i];
                x3_z[i * s1 + j] = t;
            }
        }
    }
}

// A block for each matrix: getrf.
extern "C" __global__ void k0_1(
        double* __restrict__ x3, int* __restrict__ x4, int* __restrict__ x5, long long s0, long long s1) {
    for (long long z2 = blockIdx.x; z2 < s0; z2 += gridDim.x) {
        double* x3_z2 = x3 + z2 * (s1 * s1);
        int* x4_z2 = x4 + z2 * s1;
        int* x5_z2 = x5 + z2 * 1;
        // fit.py:3
        pb_getrf(s1, s1, x3_z2, s1, x4_z2, x5_z2);
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k0_2(
        double* __restrict__ x1, long long* __restrict__ x2, const double* __restrict__ x3,
        const int* __restrict__ x4, long long s0, long long s1) {
    for (long long z3 = blockIdx.x; z3 < s0; z3 += gridDim.x) {
        double* x1_z3 = x1 + z3 * (s1 * s1);
        long long* x2_z3 = x2 + z3 * s1;
        const double* x3_z3 = x3 + z3 * (s1 * s1);
        const int* x4_z3 = x4 + z3 * s1;
        for (long long i2 = threadIdx.x; i2 < s1; i2 += blockDim.x) {
            for (long long j2 = 0; j2 < s1; ++j2) {
                // fit.py:3
                double t2 = x3_z3[j2 * s1 + i2];
                x1_z3[i2 * s1 + j2] = t2;
            }
        }
        bool whole = pb_is_whole<2>(x2_z3, 2);
        pb_packs<2>(2 * threadIdx.x, s1, 2 * blockDim.x, whole, [&](long long first, bool whole) {
            int count = whole ? 2 : pb_count<2>(s1 - first, 2);
            pb_pack<long long, 2> x2_z3_2;
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                long long i3 = first + k;
                x2_z3_2.at[k] = i3;
            }
            pb_write(&x2_z3[first], x2_z3_2, count, whole);
        });
        bool whole2 = pb_is_whole<2>(x4_z3, 2) && pb_is_whole<2>(x2_z3, 2);
        pb_packs<2>(2 * threadIdx.x, s1, 2 * blockDim.x, whole2, [&](long long first2, bool whole2) {
            int count2 = whole2 ? 2 : pb_count<2>(s1 - first2, 2);
            pb_pack<int, 2> x4_z3_2 = pb_read<2>(&x4_z3[first2], count2, whole2);
            pb_pack<long long, 2> x2_z3_2_2;
#pragma unroll
            for (int k2 = 0; k2 < 2; ++k2) {
                // fit.py:3
                int t3 = x4_z3_2.at[k2];
                long long t4 = pb_cast<long long>(t3);
                long long t5 = (long long)((unsigned long long)t4 - (unsigned long long)1LL);
                x2_z3_2_2.at[k2] = t5;
            }
            pb_write(&x2_z3[first2], x2_z3_2_2, count2, whole2);
        });
    }
}

// A block for each row.
extern "C" __global__ void __launch_bounds__(512, 1) k1_0(
        const double* __restrict__ x1, double* __restrict__ x2, long long s0, long long s1, long long s2) {
    for (long long z = blockIdx.x; z < s0; z += gridDim.x) {
        const double* x1_z = x1 + z * (s1 * s2);
        double* x2_z = x2 + z * (s1 * s2);
        for (long long i = threadIdx.x; i < s1; i += blockDim.x) {
            for (long long j = 0; j < s2; ++j) {
                // fit.py:4
                double t = x1_z[i * s2 + j];
                x2_z[i * s2 + j] = t;
            }
        }
    }
}

// A block for each matrix: trsm.
extern "C" __global__ void k1_1(
        const double* __restrict__ x0, double* __restrict__ x2, long long s0, long long s1, long long s2) {
    for (long long z2 = blockIdx.x; z2 < s0; z2 += gridDim.x) {
        const double* x0_z2 = x0 + z2 * (s1 * s1);
        double* x2_z2 = x2 + z2 * (s1 * s2);
        // fit.py:4
        pb_trsm('R', 'U', 'N', 'U', s2, s1, x0_z2, s1, x2_z2, s2);
    }
}
