"""The device functions that emitted kernels call and that CUDA lacks.

Each has the semantics of the op of the same name (``pullback.ir.ops.elementwise.semantics``) for every element type. They need
no header, so that the run-time compiler accepts them as they are. ``functions(text)`` returns the text of those that are
called, callees first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

DEVICE: Mapping[str, str] = {
    "PB_INF": """\
#define PB_INF __longlong_as_double(0x7ff0000000000000LL)
#define PB_NAN __longlong_as_double(0x7ff8000000000000LL)""",
    "pb_first": """\
// The first index of a thread, and how far the next one is, where all threads of a grid share out a loop.
__device__ long long pb_first() { return (long long)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ long long pb_step() { return (long long)gridDim.x * blockDim.x; }""",
    "pb_bitcast": """\
template <class T, class S> __device__ T pb_bitcast(S x) {
    static_assert(sizeof(T) == sizeof(S), "a bitcast keeps the size");
    union { S from; T to; } bits;
    bits.from = x;
    return bits.to;
}""",
    "pb_bits": """\
__device__ unsigned pb_bits(float x) { return pb_bitcast<unsigned>(x); }
__device__ unsigned long long pb_bits(double x) { return pb_bitcast<unsigned long long>(x); }""",
    "pb_odd": """\
// A double as a float that can be rounded once more: towards zero, its last bit set if anything was left out.
__device__ float pb_odd(double x) {
    float found = (float)x;
    double back = found;
    if (back == x || x != x || back - back != 0) return found;
    unsigned bits = pb_bitcast<unsigned>(found);
    return pb_bitcast<float>((fabs(back) > fabs(x) ? bits - 1 : bits) | 1u);
}""",
    "pb_from_f16": """\
// float16 from and to its bits.
__device__ float pb_from_f16(unsigned short bits) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_HOST__)
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
#else
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent == 31 ? (fraction ? (float)PB_NAN : (float)PB_INF)
                 : exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    return bits >> 15 ? -size : size;
#endif
}
__device__ unsigned short pb_to_f16(float x) {
#if defined(__CUDA_ARCH__) && !defined(__CUDA_HOST__)
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
#else
    unsigned short sign = pb_bitcast<unsigned>(x) >> 16 & 0x8000;
    float size = fabsf(x);
    if (size != size) return 0x7fff;
    if (size >= 65520.0f) return sign | 0x7c00;
    if (size < 6.103515625e-5f) return sign | (unsigned short)rintf(ldexpf(size, 24));
    unsigned bits = pb_bitcast<unsigned>(size);
    return sign | (unsigned short)((bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13);
#endif
}
__device__ unsigned short pb_to_f16(double x) { return pb_to_f16(pb_odd(x)); }
template <class T> __device__ float pb_round_f16(T x) { return pb_from_f16(pb_to_f16(x)); }""",
    "pb_from_bf16": """\
// bfloat16 from and to its bits.
__device__ float pb_from_bf16(unsigned short bits) { return pb_bitcast<float>((unsigned)bits << 16); }
__device__ unsigned short pb_to_bf16(float x) {
    unsigned bits = pb_bitcast<unsigned>(x);
    return x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
__device__ unsigned short pb_to_bf16(double x) { return pb_to_bf16(pb_odd(x)); }
template <class T> __device__ float pb_round_bf16(T x) { return pb_from_bf16(pb_to_bf16(x)); }""",
    "pb_sum": """\
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
};""",
    "pb_pack": """\
// Elements that lie side by side, moved as one word where they may be: their number is a power of two, of at most 16 bytes.
template <int bytes> struct pb_word { typedef uint4 type; };
template <> struct pb_word<8> { typedef uint2 type; };
template <> struct pb_word<4> { typedef unsigned type; };
template <> struct pb_word<2> { typedef unsigned short type; };
template <class T, int N> struct alignas(N * sizeof(T)) pb_pack { T at[N]; };
template <int N, class T> __device__ bool pb_is_whole(const T* place, int count) {
    return count == N && (unsigned long long)place % (N * sizeof(T)) == 0;
}""",
    "pb_packs": """\
// The turns of a thread, each of ``size`` elements. ``each`` is there twice: for packs that are whole, of which it need not ask
// how many elements they have and where they lie, and for others.
template <int size, class F> __device__ void pb_packs(long long first, long long end, long long step, bool whole, F each) {
    if (whole)
        for (; first + size <= end; first += step) each(first, true);
    for (; first < end; first += step) each(first, false);
}""",
    "pb_count": """\
// How many elements a pack has: ``width``, or what is left.
template <int N> __device__ int pb_count(long long left, int width) { return left < width ? (int)left : width; }""",
    "pb_read": """\
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
}""",
    "pb_write": """\
template <int N, class T> __device__ void pb_write(T* place, pb_pack<T, N> given, int count, bool whole = false) {
    if (whole || pb_is_whole<N>(place, count)) {
        typedef typename pb_word<N * sizeof(T)>::type word;
        *(word*)place = pb_bitcast<word>(given);
        return;
    }
    for (int k = 0; k < N; ++k)
        if (k < count) place[k] = given.at[k];
}""",
    "pb_best": """\
// A value and its position; -1 is none.
template <class T> struct pb_best { T value; long long at; };
template <class T> __device__ bool pb_is_earlier(pb_best<T> x, pb_best<T> y) { return x.at < y.at; }""",
    "pb_argmax": """\
// The larger value: NaN is the largest, the first position wins a tie.
template <class T> __device__ pb_best<T> pb_argmax(pb_best<T> x, pb_best<T> y) {
    if (x.at < 0 || y.at < 0) return x.at < 0 ? y : x;
    bool x_nan = x.value != x.value, y_nan = y.value != y.value;
    if (x_nan || y_nan) return x_nan && (!y_nan || pb_is_earlier(x, y)) ? x : y;
    if (x.value == y.value) return pb_is_earlier(x, y) ? x : y;
    return x.value > y.value ? x : y;
}""",
    "pb_argmin": """\
// The smaller value: NaN is the smallest, the first position wins a tie.
template <class T> __device__ pb_best<T> pb_argmin(pb_best<T> x, pb_best<T> y) {
    if (x.at < 0 || y.at < 0) return x.at < 0 ? y : x;
    bool x_nan = x.value != x.value, y_nan = y.value != y.value;
    if (x_nan || y_nan) return x_nan && (!y_nan || pb_is_earlier(x, y)) ? x : y;
    if (x.value == y.value) return pb_is_earlier(x, y) ? x : y;
    return x.value < y.value ? x : y;
}""",
    "pb_down": """\
template <class T> __device__ T pb_down(T x, int distance) { return (T)__shfl_down_sync(0xffffffffu, x, distance); }""",
    "pb_block": """\
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
}""",
    "pb_warps": """\
// The combination of what the same lane of all warps gives, the warps in order.
template <auto combine, class T> __device__ T pb_warps(T x) {
    __shared__ T given[1024];
    __syncthreads();
    given[threadIdx.x] = x;
    __syncthreads();
    T all = given[threadIdx.x % 32];
    for (int k = threadIdx.x % 32 + 32; k < blockDim.x; k += 32) all = combine(all, given[k]);
    return all;
}""",
    "pb_scan": """\
// What the threads before one give, combined with what comes before them all, in a fixed tree. ``before`` takes in all threads.
template <auto combine, class T> __device__ T pb_scan(T x, T& before) {
    __shared__ T warps[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int distance = 1; distance < 32; distance *= 2) {
        T left = (T)__shfl_up_sync(0xffffffffu, x, distance);
        if (lane >= distance) x = combine(left, x);
    }
    __syncthreads();
    if (lane == 31) warps[warp] = x;
    __syncthreads();
    T left = (T)__shfl_up_sync(0xffffffffu, x, 1), all = before, mine = before;
    for (int k = 0; k < blockDim.x / 32; ++k) {
        if (k == warp) mine = all;
        all = combine(all, warps[k]);
    }
    before = all;
    return lane ? combine(mine, left) : mine;
}""",
    "pb_chunks": """\
// Into how many chunks each of so many lines is cut if so many units share them out, and how many steps a chunk has.
__device__ long long pb_chunks(long long units, long long lines) { return lines && units > lines ? units / lines : 1; }
__device__ long long pb_chunk_size(long long steps, long long chunks, long long multiple) {
    long long size = (steps + chunks - 1) / chunks;
    return (size + multiple - 1) / multiple * multiple;
}""",
    "pb_line": """\
// Some steps of x = a * x + b: slope * x + offset. No slope is given if it was too small a number meanwhile, and could be wrong.
template <class T> struct pb_line {
    static constexpr bool is_whole = T(0.5) == T(0);
    T slope = 1, offset = 0, growth = 1;
    bool is_zero = false, is_low = false;
    __device__ void then(T a, T b) {
        if constexpr (is_whole) {
            slope = (T)((unsigned long long)a * (unsigned long long)slope);
            offset = (T)((unsigned long long)a * (unsigned long long)offset + (unsigned long long)b);
        } else {
            slope *= a;
            offset = a * offset + b;
            growth = fmax(T(1), growth * fabs(a));
            is_zero = is_zero || a == T(0);
            is_low = is_low || (!is_zero && fabs(slope) < T(sizeof(T) == 8 ? 2.3e-308 : 1.2e-38));
        }
    }
    __device__ T slope_or_nan() const {
        if constexpr (is_whole) return slope;
        else if (!(fabs(slope) < T(PB_INF))) return (T)PB_INF;
        else return is_low && (growth > T(1e6) || offset == T(0)) ? (T)PB_NAN : slope;
    }
};""",
    "pb_follows": """\
// What comes after some steps takes the place of what was before; false if it would be lost in rounding, or is not known.
template <class T> __device__ bool pb_follows(T& x, T slope, T offset) {
    if constexpr (T(0.5) == T(0)) {
        x = (T)((unsigned long long)slope * (unsigned long long)x + (unsigned long long)offset);
        return true;
    } else {
        if (x != x) return true;
        T moved = x == T(0) ? x : slope * x, next = moved + offset;
        bool is_known = fabs(next) < T(PB_INF) && fabs(slope) < T(PB_INF);
        is_known = is_known && (fabs(slope) <= T(1) || fabs(next) >= fabs(moved) / 16);
        if (slope != slope && x == T(0)) is_known = true;
        if (is_known) x = next;
        return is_known;
    }
}""",
    "pb_down_best": """\
template <class T> __device__ pb_best<T> pb_down(pb_best<T> x, int distance) {
    return {(T)__shfl_down_sync(0xffffffffu, x.value, distance), __shfl_down_sync(0xffffffffu, x.at, distance)};
}""",
    "pb_gcd": """\
template <class T> __device__ T pb_gcd(T x, T y) {
    unsigned long long a = x < 0 ? 0ull - (unsigned long long)x : x, b = y < 0 ? 0ull - (unsigned long long)y : y;
    while (b) {
        unsigned long long rest = a % b;
        a = b;
        b = rest;
    }
    return (T)a;
}""",
    "pb_fail": """\
// The least code of all checks that fail stays, whichever thread comes first.
__device__ void pb_fail(int* status, bool failed, int code) {
    if (!failed) return;
    for (int before = 0, seen = atomicCAS(status, 0, code); seen != before && seen > code;) {
        before = seen;
        seen = atomicCAS(status, before, code);
    }
}""",
    "pb_at": """\
template <class T> __device__ T* pb_at(T* base, long long bytes) {
    return (T*)((const char*)base + bytes);
}""",
    "pb_rem": """\
template <class T> __device__ T pb_rem(T x, T y) {
    if (y == T(0) || (T(-1) < T(0) && y == T(-1))) return 0;
    return x % y;
}""",
    "pb_quotient": """\
template <class T> __device__ T pb_quotient(T x, T y) {
    if (y == T(0)) return 0;
    if (T(-1) < T(0) && y == T(-1)) return (T)(0ULL - (unsigned long long)x);
    return x / y;
}""",
    "pb_goes_down": """\
// Whether a quotient rounded to zero is one above the floor.
template <class T> __device__ bool pb_goes_down(T remainder, T y) {
    return remainder != T(0) && (remainder < T(0)) != (y < T(0));
}""",
    "pb_floordiv": """\
template <class T> __device__ T pb_floordiv(T x, T y) {
    if constexpr (T(0.5) == T(0)) {
        return pb_quotient(x, y) - (pb_goes_down(pb_rem(x, y), y) ? 1 : 0);
    } else {
        if (y == T(0)) return x / y;
        T remainder = fmod(x, y), whole = (x - remainder) / y;
        if (pb_goes_down(remainder, y)) whole -= 1;
        if (whole == T(0)) return copysign(T(0), x / y);
        T below = floor(whole);
        return whole - below > T(0.5) ? below + 1 : below;
    }
}""",
    "pb_mod": """\
template <class T> __device__ T pb_mod(T x, T y) {
    if constexpr (T(0.5) == T(0)) {
        T remainder = pb_rem(x, y);
        return pb_goes_down(remainder, y) ? (T)(remainder + y) : remainder;
    } else {
        T remainder = fmod(x, y);
        if (y == T(0)) return remainder;
        if (remainder == T(0)) return copysign(T(0), y);
        return pb_goes_down(remainder, y) ? remainder + y : remainder;
    }
}""",
    "pb_abs": """\
template <class T> __device__ T pb_abs(T x) {
    if constexpr (T(0.5) != T(0)) return fabs(x);
    else return x < T(0) ? (T)(0ULL - (unsigned long long)x) : x;
}""",
    "pb_sign": """\
template <class T> __device__ T pb_sign(T x) { return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == T(0) ? T(0) : x; }""",
    "pb_pow": """\
template <class T> __device__ T pb_pow(T x, T y) {
    if constexpr (T(0.5) != T(0)) {
        return pow(x, y);
    } else {
        if (y < T(0)) return 0;
        unsigned long long power = 1, square = (unsigned long long)x;
        for (unsigned long long left = (unsigned long long)y; left; left >>= 1, square *= square)
            if (left & 1) power *= square;
        return (T)power;
    }
}""",
    "pb_maximum": """\
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
}""",
    "pb_minimum": """\
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
}""",
    "pb_fmax": """\
template <class T> __device__ T pb_fmax(T x, T y) { return x != x ? y : y != y ? x : pb_maximum(x, y); }""",
    "pb_fmin": """\
template <class T> __device__ T pb_fmin(T x, T y) { return x != x ? y : y != y ? x : pb_minimum(x, y); }""",
    "pb_hypot": """\
// The larger one where the other is too small to count: hypot may give the next number above it, and infinity for the largest.
template <class T> __device__ T pb_hypot(T x, T y) {
    T a = fabs(x), b = fabs(y), low = a < b ? a : b, high = a < b ? b : a;
    return low < high * T(sizeof(T) == 8 ? 7e-9 : 2e-4) ? high : hypot(x, y);
}""",
    "pb_over_hypot": """\
// x over h, which is the hypot of x and y: where that is subnormal it has too few digits.
template <class T> __device__ T pb_over_hypot(T x, T y, T h) {
    if (!(h > T(0) && h < T(sizeof(T) == 8 ? 2.2250738585072014e-308 : 1.17549435e-38))) return h == T(0) ? h : x / h;
    const T up = T(sizeof(T) == 8 ? 1152921504606846976.0 : 1073741824.0);
    return x * up / pb_hypot(x * up, y * up);
}""",
    "pb_logaddexp": """\
template <class T> __device__ T pb_logaddexp(T x, T y) {
    if (x == y) return x + T(0.6931471805599453);
    T difference = x - y;
    if (difference > T(0)) return x + log1p(exp(-difference));
    return difference <= T(0) ? y + log1p(exp(difference)) : difference;
}""",
    "pb_expit": """\
template <class T> __device__ T pb_expit(T x) {
    if (x >= T(0)) return T(1) / (T(1) + exp(-x));
    T e = exp(x);
    return e / (T(1) + e);
}""",
    "pb_logistic_pdf": """\
template <class T> __device__ T pb_logistic_pdf(T x) {
    T e = exp(-fabs(x)), inverse = T(1) / (T(1) + e);
    return e * inverse * inverse;
}""",
    "pb_sech2": """\
template <class T> __device__ T pb_sech2(T x) {
    T e = exp(T(-2) * fabs(x)), inverse = T(1) / (T(1) + e);
    return T(4) * e * inverse * inverse;
}""",
    "pb_tanh_tail": """\
template <class T> __device__ T pb_tanh_tail(T x) {
    T e = exp(T(-2) * fabs(x));
    return T(2) * e / (T(1) + e);
}""",
    "pb_gauss": """\
// exp(-share * x * x) with the rounding error of the square.
template <class T> __device__ T pb_gauss(T x, double part) {
    T share = (T)part, square = x * x, rest = fma(x, x, -square), high = exp(-share * square);
    return high > T(0) && fabs(rest) < T(1) ? fma(high, -share * rest, high) : high;
}""",
    "pb_inverse_mills": """\
template <class T> __device__ T pb_inverse_mills(T x) {
    if (x < T(0)) return T(0.7978845608028654) / erfcx(x * T(-0.7071067811865476));
    return T(0.3989422804014327) * pb_gauss(x, 0.5) / normcdf(x);
}""",
    "pb_ierfcx": """\
// exp(x * x) times the integral of erfc of order n, 1 or 2: by the recurrence (DLMF 7.18.7) below 1, by its continued fraction
// above, of which k terms leave an error of about exp(-2 * x * sqrt(2 * k)).
template <class T> __device__ T pb_ierfcx(T value, int n) {
    double x = value, before = 1.1283791670955126, now = erfcx(x);
    if (x < 1.0) {
        for (int k = 1; k <= n; ++k) {
            double next = (before - 2.0 * x * now) / (2.0 * k);
            before = now, now = next;
        }
        return (T)now;
    }
    double ratio = 0.0, product = now;
    for (int k = 200; k > n + 1; --k) ratio = 1.0 / (2.0 * x + 2.0 * k * ratio);
    for (int k = n; k >= 1; --k) {
        ratio = 1.0 / (2.0 * x + 2.0 * (k + 1) * ratio);
        product *= ratio;
    }
    return (T)product;
}""",
    "pb_mills_gap": """\
// x + pb_inverse_mills(x): below -1.1 by the continued fraction of the quotient of integrals of erfc, as in pb_ierfcx.
template <class T> __device__ T pb_mills_gap(T value) {
    if (value > T(-1.1)) return value + pb_inverse_mills(value);
    double y = -0.7071067811865476 * value, ratio = 0.0;
    for (int k = 300; k >= 2; --k) ratio = 1.0 / (2.0 * y + 2.0 * k * ratio);
    return (T)(1.4142135623730951 * ratio);
}""",
    "pb_digamma": """\
// Reflection to x > 0, recurrence to x >= 10, then the asymptotic series (DLMF 5.5.4, 5.5.2, 5.11.2).
template <class T> __device__ T pb_digamma(T value) {
    double x = value, shift = 0.0;
    if (x == 0.0) return (T)copysign(PB_INF, -x);
    if (x < 0.0) {
        if (x == floor(x)) return (T)PB_NAN;
        shift = -3.141592653589793 / tan(3.141592653589793 * (x - rint(x)));
        x = 1.0 - x;
    }
    for (; x < 10.0; x += 1.0) shift -= 1.0 / x;
    double z = 1.0 / (x * x);
    double tail = 1.0 / 132 - z * (691.0 / 32760 - z / 12);
    tail = z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * tail))));
    return (T)(x < PB_INF ? shift + (log(x) - 0.5 / x - tail) : x);
}""",
    "pb_zeta": """\
// Hurwitz's zeta function for s > 1 by Euler and Maclaurin's sum (DLMF 25.11.5): terms to q >= 10 and q >= s, unless further
// ones change nothing, then ten corrections.
template <class T> __device__ T pb_zeta(T order, T start) {
    const double corrections[] = {12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1307674368000.0 / 691, 74724249600.0,
                                  -10670622842880000.0 / 3617, 5109094217170944000.0 / 43867, -802857662698291200000.0 / 174611};
    double s = order, q = start, sum = 0.0;
    if (s == 1.0) return (T)PB_INF;
    if (!(s > 1.0)) return (T)PB_NAN;
    if (q <= 0.0 && q == floor(q)) return (T)PB_INF;
    if (q <= 0.0 && s != floor(s)) return (T)PB_NAN;
    for (; q < 10.0 || q < s; q += 1.0) {
        double term = pow(q, -s), before = sum;
        sum += term;
        if (q > 0.0 && (sum == before || isinf(sum))) return (T)sum;
    }
    double power = pow(q, -s), factor = s, denominator = q;
    sum += power * (q / (s - 1.0) + 0.5);
    for (int k = 0; k < 10; ++k) {
        sum += power * factor / (corrections[k] * denominator);
        factor *= (s + 2 * k + 1) * (s + 2 * k + 2);
        denominator *= q * q;
    }
    return (T)sum;
}""",
    "pb_polygamma": """\
template <class T> __device__ T pb_polygamma(T x, int n) {
    double size = tgamma(n + 1.0) * pb_zeta<double>(n + 1.0, x);
    return (T)(n % 2 ? size : -size);
}""",
    "pb_polygamma_step": """\
// polygamma(n, x + d) - polygamma(n, x) for n of 0 and 1: differences of reciprocals, then of the asymptotic series.
template <class T> __device__ T pb_polygamma_step(T from, T by, int n) {
    const double numbers[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
    double d = by, first = from, last = first + d, x = d < 0.0 ? last : first, end = d < 0.0 ? first : last, size = fabs(d);
    if (!(x > 0.0) || isinf(end)) {
        return n ? (T)(pb_polygamma<double>(last, 1) - pb_polygamma<double>(first, 1))
                 : (T)(pb_digamma<double>(last) - pb_digamma<double>(first));
    }
    double total = 0.0;
    for (int k = 0; k < 10; ++k) {
        double p = 1.0 / (x + k), q = 1.0 / (end + k), term = size * p * q;
        total += n ? term * (p + q) : term;
    }
    double p = 1.0 / (x + 10.0), q = 1.0 / (end + 10.0), step = size * p * q, sum = p + q;
    double series = n ? 0.5 * sum : 0.5, ratio = n ? p * p + q * sum : sum, power = n ? q : 1.0;
    for (int j = 1; j <= 7; ++j) {
        series += ratio * (n ? numbers[j - 1] : numbers[j - 1] / (2 * j));
        power *= q * q;
        ratio = p * p * ratio + power * sum;
    }
    total = n ? -(total + step + step * series) : total + step * series + log1p(size * p);
    return (T)(d < 0.0 ? -total : total);
}""",
    "pb_shl": """\
template <class T> __device__ T pb_shl(T x, T n) {
    return n >= T(0) && n < T(8 * sizeof(T)) ? (T)((unsigned long long)x << (unsigned long long)n) : T(0);
}""",
    "pb_shr": """\
template <class T> __device__ T pb_shr(T x, T n) {
    if (n >= T(0) && n < T(8 * sizeof(T))) return (T)(x >> n);
    return x < T(0) ? T(-1) : T(0);
}""",
    "pb_below": """\
template <class T> __device__ bool pb_below(T x, T n) {
    return (unsigned long long)x < (unsigned long long)n;
}""",
    "pb_is_index": """\
template <class T> __device__ bool pb_is_index(T x, T n) {
    return pb_below(x < 0 ? (T)((unsigned long long)x + (unsigned long long)n) : x, n);
}""",
    "pb_mulhi": """\
template <class T> __device__ T pb_mulhi(T x, T y) {
    if constexpr (sizeof(T) == 8) {
        unsigned long long low = 0xFFFFFFFFULL, x0 = x & low, x1 = x >> 32, y0 = y & low, y1 = y >> 32;
        unsigned long long first = x1 * y0 + (x0 * y0 >> 32), second = x0 * y1 + (first & low);
        return x1 * y1 + (first >> 32) + (second >> 32);
    } else {
        return (T)((unsigned long long)x * (unsigned long long)y >> 8 * sizeof(T));
    }
}""",
    "pb_add_fits": """\
template <class T> __device__ bool pb_add_fits(T x, T y) {
    T total = (T)((unsigned long long)x + (unsigned long long)y);
    return (T)((x ^ total) & (y ^ total)) >= T(0);
}""",
    "pb_sub_fits": """\
template <class T> __device__ bool pb_sub_fits(T x, T y) {
    T difference = (T)((unsigned long long)x - (unsigned long long)y);
    return (T)((x ^ y) & (x ^ difference)) >= T(0);
}""",
    "pb_mul_fits": """\
template <class T> __device__ bool pb_mul_fits(T x, T y) {
    unsigned long long product = (unsigned long long)x * (unsigned long long)y;
    if constexpr (sizeof(T) < 8) return (long long)(T)product == (long long)product;
    unsigned long long high = pb_mulhi((unsigned long long)x, (unsigned long long)y);
    high -= (x < 0 ? (unsigned long long)y : 0) + (y < 0 ? (unsigned long long)x : 0);
    return (long long)high == (long long)product >> 63;
}""",
    "pb_philox": """\
// A word of a block of Philox4x64-10.
template <class T> __device__ T pb_philox(T c0, T c1, T c2, T c3, T k0, T k1, int word) {
    const T m0 = (T)0xD2E7470EE14C6C93ULL, m1 = (T)0xCA5A826395121157ULL;
    for (int round = 0; round < 10; ++round) {
        T left = pb_mulhi(c2, m1) ^ c1 ^ k0, right = pb_mulhi(c0, m0) ^ c3 ^ k1;
        c1 = c2 * m1, c3 = c0 * m0, c0 = left, c2 = right;
        k0 += (T)0x9E3779B97F4A7C15ULL, k1 += (T)0xBB67AE8584CAA73BULL;
    }
    return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}""",
    "pb_cast": """\
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
}""",
}
"""The functions, in an order in which callees come first."""
_ALIASES = {
    "PB_NAN": "PB_INF", "pb_complex": "pb_parts", "pb_step": "pb_first", "pb_is_whole": "pb_pack", "pb_word": "pb_pack",
    "pb_chunk_size": "pb_chunks", "pb_is_dense": "pb_dense", "pb_ldmatrix_x4_trans": "pb_ldmatrix_x4",
    **{f"pb_cp_async_{word}": "pb_cp_async16" for word in ("commit", "wait")},
    **{f"pb_{word}_{half}": f"pb_from_{half}" for word in ("to", "round") for half in ("f16", "bf16")},
}  # fmt: skip
"""The entries that define further names."""


def functions(text: str, own: Mapping[str, str]) -> str:
    """Return the device functions that ``text`` calls, and their callees. ``own``: further ones, by name."""
    table = {**DEVICE, **own}
    needed: set[str] = set()
    unread = [text]
    while unread:
        for name in re.findall(r"\b(?:pb|PB)_\w+", unread.pop()):
            name = _ALIASES.get(name, name)
            if name in table and name not in needed:
                needed.add(name)
                unread.append(table[name])
                if {"pb_best", "pb_down"} <= needed and "pb_down_best" not in needed:
                    needed.add("pb_down_best")
                    unread.append(table["pb_down_best"])
    return "\n\n".join(table[name] for name in table if name in needed)
