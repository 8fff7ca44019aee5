// CUDA C as C++ of the host: force-included before the text of kernels.
//
// A kernel is a plain function that fibers run, one for each thread (fibers.cpp). __shared__ variables are thread-local ones of
// the host: that puts all of a library's into one piece of memory, which is poisoned before each block.
#pragma once
#include <math.h>
#include <string.h>

#include <type_traits>
#include <utility>

#include "kernel.h"

#define __CUDA_HOST__ 1
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

typedef cuda_host_index uint3;
static const int warpSize = 32;

// vectors

#define CUDA_HOST_VECTORS(T, name)                                                        \
    struct name##1 { T x; };                                                              \
    struct alignas(2 * sizeof(T)) name##2 { T x, y; };                                    \
    struct name##3 { T x, y, z; };                                                        \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) name##4 { T x, y, z, w; };    \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                     \
    static inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }             \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDA_HOST_VECTORS(signed char, char)
CUDA_HOST_VECTORS(unsigned char, uchar)
CUDA_HOST_VECTORS(short, short)
CUDA_HOST_VECTORS(unsigned short, ushort)
CUDA_HOST_VECTORS(int, int)
struct uint1 { unsigned x; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
CUDA_HOST_VECTORS(long long, longlong)
CUDA_HOST_VECTORS(unsigned long long, ulonglong)
CUDA_HOST_VECTORS(float, float)
CUDA_HOST_VECTORS(double, double)

// barriers and warps; the macros give the line of the call

#define __syncthreads() ((void)cuda_host_barrier(__LINE__, BARRIER, 0))
#define __syncthreads_or(value) cuda_host_barrier(__LINE__, BARRIER_OR, (value))
#define __syncthreads_and(value) cuda_host_barrier(__LINE__, BARRIER_AND, (value))
#define __syncthreads_count(value) cuda_host_barrier(__LINE__, BARRIER_COUNT, (value))

template <class T> static inline T cuda_host_lanes(int line, cuda_host_warp_op op, unsigned mask, T value, int argument, int width = 32) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = cuda_host_warp(line, op, mask, bits, argument, width);
    memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T> static inline uint64_t cuda_host_bits(T value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
static inline unsigned cuda_host_full(unsigned mask = 0xffffffffu) { return mask; }

#define __shfl_sync(mask, ...) cuda_host_lanes(__LINE__, SHUFFLE, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) cuda_host_lanes(__LINE__, SHUFFLE_UP, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) cuda_host_lanes(__LINE__, SHUFFLE_DOWN, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) cuda_host_lanes(__LINE__, SHUFFLE_XOR, mask, __VA_ARGS__)
#define __ballot_sync(mask, value) ((unsigned)cuda_host_warp(__LINE__, BALLOT, mask, (value) ? 1 : 0, 0, 32))
#define __any_sync(mask, value) (__ballot_sync(mask, value) != 0)
#define __all_sync(mask, value) ((int)cuda_host_warp(__LINE__, ALL, mask, (value) ? 1 : 0, 0, 32))
#define __match_any_sync(mask, value) ((unsigned)cuda_host_warp(__LINE__, MATCH, mask, cuda_host_bits(value), 0, 32))
#define __reduce_add_sync(mask, value) ((decltype(value))cuda_host_warp(__LINE__, ADD, mask, (unsigned)(value), 0, 32))
#define __syncwarp(...) ((void)cuda_host_warp(__LINE__, SYNC, cuda_host_full(__VA_ARGS__), 0, 0, 32))
#define __activemask() cuda_host_active_mask()

static inline void __threadfence() { cuda_host_fence(); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { cuda_host_fence(); }
static inline void __nanosleep(unsigned) {}
#define __trap() cuda_host_stop(719, "__trap() at line %d", __LINE__)
#define assert(condition) \
    ((condition) ? (void)0 : cuda_host_stop(710, "assertion failed at line %d: %s", __LINE__, #condition))
#define __builtin_assume(condition) ((void)0)

// atomics: one thread of the host runs all, so that a plain read and write is one

template <class T> struct cuda_host_plain { typedef T type; };
template <class T> using cuda_host_same = typename cuda_host_plain<T>::type;
#define CUDA_HOST_UNWATCHED static __attribute__((no_sanitize("thread"), noinline))
#define CUDA_HOST_ATOMIC(name, expression)                                                              \
    template <class T> CUDA_HOST_UNWATCHED T name(T* place, cuda_host_same<T> value) {                  \
        cuda_host_atomic(place, sizeof(T));                                                             \
        T before = *place;                                                                              \
        *place = (T)(expression);                                                                       \
        return before;                                                                                  \
    }                                                                                                   \
    template <class T> static inline T name##_block(T* place, cuda_host_same<T> value) { return name(place, value); }
CUDA_HOST_ATOMIC(atomicAdd, before + value)
CUDA_HOST_ATOMIC(atomicSub, before - value)
CUDA_HOST_ATOMIC(atomicExch, value)
CUDA_HOST_ATOMIC(atomicMin, value < before ? value : before)
CUDA_HOST_ATOMIC(atomicMax, value > before ? value : before)
CUDA_HOST_ATOMIC(atomicAnd, before & value)
CUDA_HOST_ATOMIC(atomicOr, before | value)
CUDA_HOST_ATOMIC(atomicXor, before ^ value)
template <class T> CUDA_HOST_UNWATCHED T atomicCAS(T* place, cuda_host_same<T> expected, cuda_host_same<T> value) {
    cuda_host_atomic(place, sizeof(T));
    T before = *place;
    if (before == expected) *place = value;
    return before;
}

// bits and loads

template <class To, class From> static inline To cuda_host_cast(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline double __longlong_as_double(long long x) { return cuda_host_cast<double>(x); }
static inline long long __double_as_longlong(double x) { return cuda_host_cast<long long>(x); }
static inline float __int_as_float(int x) { return cuda_host_cast<float>(x); }
static inline int __float_as_int(float x) { return cuda_host_cast<int>(x); }
static inline float __uint_as_float(unsigned x) { return cuda_host_cast<float>(x); }
static inline unsigned __float_as_uint(float x) { return cuda_host_cast<unsigned>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __ffsll(long long x) { return __builtin_ffsll(x); }
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
static inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) { return (unsigned __int128)x * y >> 64; }
static inline long long __mul64hi(long long x, long long y) { return (__int128)x * y >> 64; }
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int k = 0; k < 32; ++k) y = y << 1 | (x >> k & 1);
    return y;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
    return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
template <class T> static inline T __ldg(const T* place) { return *place; }
template <class T> static inline T __ldcs(const T* place) { return *place; }
template <class T> static inline T __ldcg(const T* place) { return *place; }
template <class T> static inline void __stcs(T* place, cuda_host_same<T> value) { *place = value; }
template <class T> static inline void __stcg(T* place, cuda_host_same<T> value) { *place = value; }

#include "device_math.h"
#include "device_tiles.h"

// what the stand-in finds in a library of kernels: one record for each

template <class... A> struct cuda_host_of {
    static constexpr int count = sizeof...(A);
    struct Table { cuda_host_parameter row[count + 1]; size_t bytes; };
    static constexpr Table table() {
        Table made{};
        size_t at = 0;
        int k = 0;
        ((at = (at + alignof(A) - 1) / alignof(A) * alignof(A), made.row[k++] = {at, sizeof(A), std::is_pointer_v<A>}, at += sizeof(A)), ...);
        made.bytes = at;
        return made;
    }
    static constexpr Table parameters = table();
    template <void (*kernel)(A...), size_t... I> static void spread(void** p, std::index_sequence<I...>) { kernel(*(A*)p[I]...); }
    template <void (*kernel)(A...)> static void call(void** p) { spread<kernel>(p, std::index_sequence_for<A...>()); }
};
template <class... A> cuda_host_of<A...> cuda_host_signature(void (*)(A...));

#define CUDA_HOST_KERNEL(kernel, most_threads)                                                                              \
    extern "C" __attribute__((visibility("default"))) const cuda_host_kernel cuda_host_kernel_##kernel = {                  \
        #kernel, decltype(cuda_host_signature(kernel))::call<kernel>, decltype(cuda_host_signature(kernel))::count,         \
        decltype(cuda_host_signature(kernel))::parameters.row, decltype(cuda_host_signature(kernel))::parameters.bytes,     \
        most_threads};
