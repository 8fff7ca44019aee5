"""CUDA C kernels for program loops whose iterations are CUDA graphs: advance the index, copy a sequence's row to the fixed
buffer that an iteration reads and back, and keep the first nonzero status of an iteration."""

from __future__ import annotations

NAMES = ("pb_next", "pb_take", "pb_put", "pb_first")
"""The names of the kernels."""
ROW_THREADS = 256
"""Threads of a block that copies a row."""
MOST_ROW_BLOCKS = 1024
"""Most blocks that copy a row."""

TEXT = """\
// The position of the next turn.
extern "C" __global__ void pb_next(long long* position, long long step) { *position += step; }

// Row `*position` of a sequence to a place that stays, `width` bytes at a time.
template <class T>
__device__ void pb_copy(char* to, const char* from, long long bytes) {
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long k = first; k < bytes / (long long)sizeof(T); k += step) ((T*)to)[k] = ((const T*)from)[k];
}

__device__ void pb_move(char* to, const char* from, long long bytes) {
    const unsigned long long all = (unsigned long long)to | (unsigned long long)from | (unsigned long long)bytes;
    if (all % 16 == 0) pb_copy<uint4>(to, from, bytes);
    else if (all % 4 == 0) pb_copy<unsigned int>(to, from, bytes);
    else pb_copy<char>(to, from, bytes);
}

extern "C" __global__ void pb_take(const long long* position, const char* rows, char* row, long long bytes) {
    pb_move(row, rows + *position * bytes, bytes);
}

extern "C" __global__ void pb_put(const long long* position, char* rows, const char* row, long long bytes) {
    pb_move(rows + *position * bytes, row, bytes);
}

// The first status that is set, as its number + 1 above bit 32 and what it says below, unless there was one before.
extern "C" __global__ void pb_first(const int* statuses, int first, int count, long long* found) {
    for (int k = 0; k < count && !*found; ++k) {
        if (statuses[k]) *found = ((long long)(first + k + 1) << 32) | (unsigned int)statuses[k];
    }
}
"""


def row_blocks(size: int) -> int:
    """Return the number of blocks that copy a row of ``size`` bytes."""
    return min(max(-(-size // (16 * ROW_THREADS)), 1), MOST_ROW_BLOCKS)
