// Who read and wrote what, for the memory that the threads of a launch share: two that touch one place, one of them to write,
// with no barrier between them, end the launch; so does a read of shared memory that no thread of the block has written.
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace races {

// Where the memory of devices lies; its records are kept beside it. Once.
void watch_devices(uintptr_t start, size_t bytes);

// The shared memory of the blocks of a launch, in up to two pieces.
void watch_shared(uintptr_t start, size_t bytes, uintptr_t other_start, size_t other_bytes);

void start_launch();
void start_block();
void start_thread(unsigned number);  // and every time that a thread goes on
void pass_barrier();
void pass_warp(unsigned number);     // a thread went through __syncwarp
void stop_watching();

// Records of device memory that is freed.
void forget(uintptr_t start, size_t bytes);

}  // namespace races
