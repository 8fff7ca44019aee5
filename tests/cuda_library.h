// CUDA C on the host, for tests: force-included before the text of emitted kernels, which then compile as C++.
//
// The threads of a block are coroutines that take turns at barriers, on one thread of the host; blocks run one after the other.
// A barrier or a shuffle that only some of a block's threads reach stops the launch: host_launch then gives false.

#include <math.h>
#include <string.h>
#include <ucontext.h>

#include <utility>

#define __global__
#define __device__
#define __shared__ static

struct host_dim { unsigned x = 0, y = 0, z = 0; };
static host_dim threadIdx, blockIdx, blockDim, gridDim;

static const int HOST_THREADS = 1024, HOST_STACK = 1 << 16;
static ucontext_t host_main, host_threads[HOST_THREADS];
static char host_stacks[HOST_THREADS][HOST_STACK];
static bool host_done[HOST_THREADS];
static int host_places[HOST_THREADS];
static unsigned long long host_slots[HOST_THREADS];

static void host_wait(int place) {
    unsigned self = threadIdx.x;
    host_places[self] = place;
    swapcontext(&host_threads[self], &host_main);
}

#define __syncthreads() host_wait(__LINE__)

template <class T> static T host_from(int place, T value, int other) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    unsigned self = threadIdx.x;
    memcpy(&host_slots[self], &value, sizeof value);
    host_wait(place);
    if (other >= 0 && other < 32 && self - self % 32 + other < blockDim.x) memcpy(&value, &host_slots[self - self % 32 + other], sizeof value);
    host_wait(-place);
    return value;
}

#define __shfl_down_sync(mask, value, distance) host_from(__LINE__, value, (int)(threadIdx.x % 32) + (distance))
#define __shfl_up_sync(mask, value, distance) host_from(__LINE__, value, (int)(threadIdx.x % 32) - (distance))
#define __shfl_sync(mask, value, lane) host_from(__LINE__, value, lane)
#define __shfl_xor_sync(mask, value, bits) host_from(__LINE__, value, (int)(threadIdx.x % 32) ^ (bits))

static inline unsigned host_ballot(int place, bool test) {
    unsigned found = 0, self = threadIdx.x;
    host_slots[self] = test;
    host_wait(place);
    for (unsigned k = 0; k < 32; ++k) found |= (unsigned)(host_slots[self - self % 32 + k] & 1) << k;
    host_wait(-place);
    return found;
}
#define __ballot_sync(mask, test) host_ballot(__LINE__, test)

static inline unsigned host_match(int place, unsigned value) {
    unsigned found = 0, self = threadIdx.x;
    host_slots[self] = value;
    host_wait(place);
    for (unsigned k = 0; k < 32; ++k) found |= (unsigned)(host_slots[self - self % 32 + k] == value) << k;
    host_wait(-place);
    return found;
}
#define __match_any_sync(mask, value) host_match(__LINE__, value)
#define __popc(x) __builtin_popcount(x)
#define __ffs(x) __builtin_ffs(x)

template <class T> static T atomicAdd(T* place, T value) { T before = *place; *place = before + value; return before; }
template <class T> static T atomicMax(T* place, T value) { T before = *place; if (before < value) *place = value; return before; }
template <class T> static T atomicMin(T* place, T value) { T before = *place; if (value < before) *place = value; return before; }
template <class T> static T atomicAnd(T* place, T value) { T before = *place; *place = before & value; return before; }
template <class T> static T atomicOr(T* place, T value) { T before = *place; *place = before | value; return before; }
template <class T> static T atomicXor(T* place, T value) { T before = *place; *place = before ^ value; return before; }

static inline int atomicCAS(int* place, int expected, int value) {
    int before = *place;
    if (before == expected) *place = value;
    return before;
}

static inline double __longlong_as_double(long long bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// functions that CUDA's library has and the host's lacks, in long double and by Newton's method

static inline double normcdf(double x) { return erfcl(x * -M_SQRT1_2l) / 2; }

static inline double erfcx(double x) {
    if (x < 50) return expl((long double)x * x) * erfcl(x);
    return isinf(x) ? 0 : (1 - 0.5l / x / x + 0.75l / x / x / x / x) / x / sqrtl(M_PIl);
}

static inline double erfinv(double y);

static inline double erfcinv(double y) {
    if (y > 0.5 && y < 1.5) return erfinv(1 - y);
    if (y > 1) return -erfcinv(2 - y);
    if (!(y > 0)) return y == 0 ? INFINITY : NAN;
    long double x = sqrtl(-logl(y)), q = logl(y);
    for (int k = 0; k < 60; ++k) x += (logl(erfcl(x)) - q) * erfcl(x) * expl(x * x) * sqrtl(M_PIl) / 2;
    return x;
}

static inline double erfinv(double y) {
    if (y <= -0.5) return -erfcinv(1 + y);
    if (y >= 0.5) return erfcinv(1 - y);
    long double x = y * sqrtl(M_PIl) / 2;
    for (int k = 0; k < 20; ++k) x += (y - erfl(x)) * expl(x * x) * sqrtl(M_PIl) / 2;
    return x;
}

static inline double normcdfinv(double p) { return erfcinv(2 * p) * -M_SQRT2l; }

static long long pb_shared[(48 << 10) / 8];

static void (*host_call)(void*);
static void* host_arguments;

static void host_thread() {
    unsigned self = threadIdx.x;
    host_call(host_arguments);
    host_done[self] = true;
    host_places[self] = 0;
    setcontext(&host_main);
}

static bool host_run(unsigned blocks, unsigned threads) {
    gridDim.x = blocks;
    blockDim.x = threads;
    for (unsigned block = 0; block < blocks; ++block) {
        blockIdx.x = block;
        for (unsigned k = 0; k < threads; ++k) {
            host_done[k] = false;
            getcontext(&host_threads[k]);
            host_threads[k].uc_stack.ss_sp = host_stacks[k];
            host_threads[k].uc_stack.ss_size = HOST_STACK;
            host_threads[k].uc_link = nullptr;
            makecontext(&host_threads[k], host_thread, 0);
        }
        while (!host_done[0]) {
            for (unsigned k = 0; k < threads; ++k) {
                threadIdx.x = k;
                if (!host_done[k]) swapcontext(&host_main, &host_threads[k]);
                if (host_places[k] != host_places[0]) return false;
            }
        }
    }
    return true;
}

template <class... A> struct host_kernel {
    static void (*kernel)(A...);
    template <size_t... I> static void spread(void** p, std::index_sequence<I...>) { kernel(*(A*)p[I]...); }
    static void call(void* p) { spread((void**)p, std::index_sequence_for<A...>()); }
};
template <class... A> void (*host_kernel<A...>::kernel)(A...);

template <class... A> static bool host_launch(void (*kernel)(A...), unsigned blocks, unsigned threads, void** arguments) {
    host_kernel<A...>::kernel = kernel;
    host_call = host_kernel<A...>::call;
    host_arguments = arguments;
    return host_run(blocks, threads);
}

#define HOST_EXPORT(name) \
    extern "C" int host_##name(unsigned blocks, unsigned threads, void** p) { return host_launch(name, blocks, threads, p); }
