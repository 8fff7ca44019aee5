// Runs a launch on the calling thread of the host: blocks one after the other, the threads of a block as fibers that take turns.
#pragma once
#include <string>

#include "kernel.h"

namespace fibers {

struct Shape { unsigned x = 1, y = 1, z = 1; };

struct Launch {
    const cuda_host_kernel* kernel = nullptr;
    Shape grid, block;
    size_t dynamic = 0;      // bytes of shared memory besides the library's own
    char* shared = nullptr;  // the library's own shared memory, poisoned before each block
    size_t shared_bytes = 0;
    void** parameters = nullptr;
    char* code = nullptr;    // the library's, of all kernels
    size_t code_bytes = 0;
    double seconds = 60;     // of the processor that all threads may take
};

struct Failure {
    int error = 0;  // a CUresult
    std::string text;
    void* at = nullptr;  // the address of the code that failed, where it is known
};

// Runs a launch. ``order``: of blocks and threads: 0 ascending, 1 descending, else a seed of a random one.
// ``describe``: what is known of an address that a thread must not touch.
Failure run(const Launch& launch, uint64_t order, std::string (*describe)(const void*));

// The thread of the block that runs.
unsigned self();

// A random number; ``state`` moves on.
uint64_t random(uint64_t& state);

}  // namespace fibers
