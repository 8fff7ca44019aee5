// g++ -fsanitize=thread calls a function at each read and write of kernels; these are ours. A record is kept for every 4 bytes.
#include "races.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "kernel.h"

namespace races {
namespace {

constexpr unsigned WIDTH = 4;  // bytes for which there is a record

struct Access {
    uint32_t time;  // counts the barriers that were passed and the blocks that were begun, of all launches; 0: never
    uint16_t thread : 10, warps : 6;
    uint8_t bytes;  // which of the four
    uint8_t is_atomic : 1;
    uint8_t others : 2;  // who did the same: 0 nobody else, 1 lanes of the same warp, 2 of several warps
};

struct Record {
    Access write, read;
};

struct Region {
    uintptr_t start = 0;
    size_t bytes = 0;
    Record* records = nullptr;
    bool has(uintptr_t address) const { return address - start < bytes; }
};

constexpr int FAILED = 719;
constexpr size_t MOST_SHARED = 8 << 20;  // of all kernels of a library

Region device, shared[2];
uint32_t time = 1, block_start = 1, launch_start = 1;
unsigned self = 0;
uint8_t warps[1024];
std::vector<std::pair<uint32_t, bool>> blocks;  // of the launch: when they began, and whether they called __threadfence()
bool is_on = false, has_atomic = false;

// Whether the block that ran at a time handed over what it wrote: by a fence, and an atomic of this block.
bool is_handed_over(uint32_t then) {
    auto after = std::upper_bound(blocks.begin(), blocks.end(), std::pair(then, true));
    return has_atomic && after != blocks.begin() && std::prev(after)->second;
}

inline bool is_ordered(const Access& before, bool is_shared) {
    if (before.time < launch_start) return true;
    if (before.time < block_start) return is_shared || is_handed_over(before.time);
    if (before.time != time) return true;
    if (before.others == 2) return false;
    if (before.thread == self && !before.others) return true;
    return before.thread / 32 == self / 32 && before.warps != warps[self];  // there was a __syncwarp() between
}

[[noreturn]] void report(const Access& before, const char* now, const char* then, bool is_shared, void* at) {
    if (before.time < block_start) {
        cuda_host_stop_at(at, FAILED, "a race between blocks: this thread %s memory that another block %s", now, then);
    }
    cuda_host_stop_at(at, FAILED,
                      "a race: this thread %s %s memory that thread number %u of the block %s, with no barrier between them", now,
                      is_shared ? "shared" : "global", before.thread, then);
}

inline void look(Record& r, uint8_t bytes, bool is_write, bool is_atomic, bool is_shared, void* at) {
    const char* verb = is_write ? "writes" : "reads";
    if ((r.write.bytes & bytes) && !(is_atomic && r.write.is_atomic) && !is_ordered(r.write, is_shared)) {
        report(r.write, verb, "wrote", is_shared, at);
    }
    Access mine{time, (uint16_t)self, warps[self], bytes, is_atomic, 0};
    if (is_write) {
        if ((r.read.bytes & bytes) && !is_atomic && !is_ordered(r.read, is_shared)) report(r.read, verb, "read", is_shared, at);
        if (r.write.time == time && r.write.thread == self) mine.bytes |= r.write.bytes;
        r.write = mine;
        return;
    }
    if (is_shared && r.write.time < block_start) {
        cuda_host_stop_at(at, FAILED, "a read of shared memory that no thread of the block has written");
    }
    if (r.read.time == time) {
        if (r.read.thread == self && !r.read.others)
            mine.bytes |= r.read.bytes;
        else if (r.read.bytes & bytes)
            mine.bytes &= r.read.bytes, mine.others = r.read.others == 2 || r.read.thread / 32 != self / 32 ? 2 : 1;
    }
    r.read = mine;
}

inline __attribute__((always_inline)) void access(const void* place, size_t size, bool is_write, bool is_atomic, void* at) {
    if (!is_on) return;
    auto address = (uintptr_t)place;
    const Region* region = device.has(address)      ? &device
                           : shared[0].has(address) ? &shared[0]
                           : shared[1].has(address) ? &shared[1]
                                                    : nullptr;
    if (!region) return;
    uintptr_t offset = address - region->start, end = offset + size;
    if (offset % WIDTH + size <= WIDTH) {  // nearly always
        auto bytes = (uint8_t)(((1u << size) - 1) << offset % WIDTH);
        return look(region->records[offset / WIDTH], bytes, is_write, is_atomic, region != &device, at);
    }
    while (offset < end) {
        unsigned from = offset % WIDTH, count = (unsigned)std::min<uintptr_t>(end - offset, WIDTH - from);
        look(region->records[offset / WIDTH], (uint8_t)(((1u << count) - 1) << from), is_write, is_atomic, region != &device, at);
        offset += count;
    }
}

Record* records(size_t bytes) {
    void* made =
        mmap(nullptr, bytes / WIDTH * sizeof(Record), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) abort();
    return (Record*)made;
}

}  // namespace

void watch_devices(uintptr_t start, size_t bytes) { device = {start, bytes, records(bytes)}; }

void watch_shared(uintptr_t start, size_t bytes, uintptr_t other_start, size_t other_bytes) {
    static Record* kept[2] = {records(MOST_SHARED), records(MOST_SHARED)};
    shared[0] = {start & ~7ull, bytes + (start & 7), kept[0]};
    shared[1] = {other_start & ~7ull, other_bytes + (other_start & 7), kept[1]};
}

void start_launch() {
    launch_start = ++time;
    blocks.clear();
    is_on = true;
}

void start_block() {
    block_start = ++time;
    blocks.emplace_back(time, false);
    has_atomic = false;
    memset(warps, 0, sizeof warps);
}

void start_thread(unsigned number) { self = number; }
void pass_barrier() { ++time; }
void pass_warp(unsigned number) { warps[number] = (warps[number] + 1) % 64; }
void stop_watching() { is_on = false; }

void forget(uintptr_t start, size_t bytes) {
    if (!device.has(start)) return;
    auto from = (uintptr_t)(device.records + (start - device.start) / WIDTH), to = from + bytes / WIDTH * sizeof(Record);
    from = (from + 4095) & ~4095ull, to &= ~4095ull;
    if (to > from) madvise((void*)from, to - from, MADV_DONTNEED);
}

}  // namespace races

extern "C" {

void cuda_host_atomic(const void* place, size_t size) {
    races::has_atomic = true;
    races::access(place, size, true, true, __builtin_return_address(0));
}

void cuda_host_fence(void) {
    if (races::is_on) races::blocks.back().second = true;
}

#define ACCESSES(size)                                                                                               \
    void __tsan_read##size(void* p) { races::access(p, size, false, false, __builtin_return_address(0)); }           \
    void __tsan_write##size(void* p) { races::access(p, size, true, false, __builtin_return_address(0)); }           \
    void __tsan_unaligned_read##size(void* p) { races::access(p, size, false, false, __builtin_return_address(0)); } \
    void __tsan_unaligned_write##size(void* p) { races::access(p, size, true, false, __builtin_return_address(0)); }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* p, size_t size) { races::access(p, size, false, false, __builtin_return_address(0)); }
void __tsan_write_range(void* p, size_t size) { races::access(p, size, true, false, __builtin_return_address(0)); }
void __tsan_init(void) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit(void) {}
}
