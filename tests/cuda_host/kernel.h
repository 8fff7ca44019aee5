// What a library of kernels and the stand-in know of each other. Included by both.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct cuda_host_parameter {
    size_t offset, size;
    bool is_pointer;
};

struct cuda_host_kernel {
    const char* name;
    void (*call)(void** parameters);  // one thread
    int count;
    const cuda_host_parameter* parameters;
    size_t bytes;      // of all parameters, packed
    int most_threads;  // of a block, by __launch_bounds__; 0: not said
};

struct cuda_host_index { unsigned x, y, z; };

enum cuda_host_warp_op { SHUFFLE, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, BALLOT, ALL, SYNC, MATCH, ADD, MIN, MAX, AND, OR, XOR, TOGETHER };
enum cuda_host_barrier_op { BARRIER, BARRIER_OR, BARRIER_AND, BARRIER_COUNT };

extern "C" {
extern cuda_host_index threadIdx, blockIdx, blockDim, gridDim;

// A barrier of the block. ``line``: where it is called.
int cuda_host_barrier(int line, cuda_host_barrier_op op, int value);

// What the lanes of a warp that ``mask`` names do together; the bits that this lane gets.
uint64_t cuda_host_warp(int line, cuda_host_warp_op op, unsigned mask, uint64_t bits, int argument, int width);

unsigned cuda_host_active_mask(void);

// What all lanes of a warp do together: once each has given its own data, ``all`` is called with those of the 32 lanes. ``what``:
// its name in errors.
void cuda_host_together(int line, const char* what, void (*all)(void** lanes), void* mine);

// Copies that this thread began, in groups: the next one that waiting for all but the ``newest`` groups completes, if there is one.
void cuda_host_copy_begin(void* place, const void* from);
void cuda_host_copy_commit(void);
bool cuda_host_copy_next(unsigned newest, void** place, const void** from);

// End the launch unless an address is a multiple of 16, or one in shared memory besides.
void cuda_host_multiple_of_16(int line, const char* what, const void* address);
void cuda_host_shared_16(int line, const char* what, const void* address);

// The shared memory whose size the launch gave; it ends where its last byte is.
void* cuda_host_dynamic(void);

// End the launch with an error of the running thread; ``at``: the address of the code where it is.
[[noreturn]] void cuda_host_stop(int error, const char* format, ...);
[[noreturn]] void cuda_host_stop_at(void* at, int error, const char* format, ...);

// Before an atomic, and a memory fence: what the check of races must know.
void cuda_host_atomic(const void* place, size_t size);
void cuda_host_fence(void);
}
