// g++ -fsanitize=thread calls a function at each read and write of kernels; these are ours. A record is kept for every 8 bytes.
#include "races.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernel.h"

namespace races {
namespace {

struct Access {
    uint32_t block;   // the number of the block, counted over all launches; 0: nobody
    uint16_t barriers, thread, warps;
    uint8_t bytes;    // which of the eight
    uint8_t is_atomic : 1, by_several : 1;
};

struct Record { Access write, read; };

struct Region {
    uintptr_t start = 0;
    size_t bytes = 0;
    Record* records = nullptr;
    bool has(uintptr_t address) const { return address - start < bytes; }
};

constexpr int FAILED = 719;
constexpr size_t MOST_SHARED = 256 << 10;

Region device, shared[2];
uint32_t block = 0, first_block = 1;
uint16_t barriers = 0;
unsigned self = 0;
std::vector<uint16_t> warps(1024);
std::vector<bool> fenced;  // by block of the launch: whether it called __threadfence()
bool is_on = false, has_atomic = false;

inline bool is_ordered(const Access& before, bool is_shared) {
    if (before.block < first_block) return true;
    if (before.block != block) {
        if (is_shared) return true;
        return has_atomic && fenced[before.block - first_block];  // handed over by an atomic behind a fence
    }
    if (before.thread == self && !before.by_several) return true;
    if (before.barriers != barriers) return true;
    return before.thread / 32 == self / 32 && !before.by_several && before.warps != warps[self];
}

[[noreturn]] void report(const Access& before, const char* now, const char* then, bool is_shared, void* at) {
    if (before.block != block) {
        cuda_host_stop_at(at, FAILED, "a race between blocks: this thread %s memory that another block %s", now, then);
    }
    cuda_host_stop_at(at, FAILED, "a race: this thread %s %s memory that thread number %u of the block %s, with no barrier between them", now,
                      is_shared ? "shared" : "global", before.thread, then);
}

inline void look(Record& r, uint8_t bytes, bool is_write, bool is_atomic, bool is_shared, void* at) {
    const char* verb = is_write ? "writes" : "reads";
    if ((r.write.bytes & bytes) && !(is_atomic && r.write.is_atomic) && !is_ordered(r.write, is_shared)) {
        report(r.write, verb, "wrote", is_shared, at);
    }
    if (is_shared && !is_write && r.write.block != block) {
        cuda_host_stop_at(at, FAILED, "a read of shared memory that no thread of the block has written");
    }
    bool is_new_reader = r.read.block != block || r.read.barriers != barriers;
    if (!is_write) {
        bool by_several = !is_new_reader && (r.read.by_several || r.read.thread != self);
        r.read = {block, barriers, (uint16_t)self, warps[self], (uint8_t)(is_new_reader ? bytes : r.read.bytes | bytes), is_atomic, by_several};
        return;
    }
    if ((r.read.bytes & bytes) && !is_atomic && !is_ordered(r.read, is_shared)) report(r.read, verb, "read", is_shared, at);
    bool is_same = r.write.block == block && r.write.barriers == barriers && r.write.thread == self;
    r.write = {block, barriers, (uint16_t)self, warps[self], (uint8_t)(is_same ? r.write.bytes | bytes : bytes), is_atomic, false};
}

inline __attribute__((always_inline)) void access(const void* place, size_t size, bool is_write, bool is_atomic, void* at) {
    if (!is_on) return;
    auto address = (uintptr_t)place;
    const Region* region = device.has(address) ? &device : shared[0].has(address) ? &shared[0] : shared[1].has(address) ? &shared[1] : nullptr;
    if (!region) return;
    uintptr_t offset = address - region->start, end = offset + size;
    if (offset % 8 + size <= 8) {  // nearly always
        auto bytes = (uint8_t)(((1u << size) - 1) << offset % 8);
        return look(region->records[offset / 8], bytes, is_write, is_atomic, region != &device, at);
    }
    while (offset < end) {
        unsigned from = offset % 8, count = (unsigned)(end - offset < 8 - from ? end - offset : 8 - from);
        look(region->records[offset / 8], (uint8_t)(((1u << count) - 1) << from), is_write, is_atomic, region != &device, at);
        offset += count;
    }
}

Record* records(size_t bytes) {
    void* made = mmap(nullptr, bytes / 8 * sizeof(Record), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
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
    first_block = block + 1;
    fenced.clear();
    is_on = true;
}

void start_block() {
    ++block;
    fenced.push_back(false);
    barriers = 0;
    has_atomic = false;
    memset(warps.data(), 0, warps.size() * sizeof warps[0]);
}

void start_thread(unsigned number) { self = number; }
void pass_barrier() { ++barriers; }
void pass_warp(unsigned number) { ++warps[number]; }
void stop_watching() { is_on = false; }

void forget(uintptr_t start, size_t bytes) {
    if (!device.has(start)) return;
    auto from = (uintptr_t)(device.records + (start - device.start) / 8), to = from + bytes / 8 * sizeof(Record);
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
    if (races::is_on) races::fenced[races::block - races::first_block] = true;
}

#define ACCESSES(size)                                                                                                             \
    void __tsan_read##size(void* p) { races::access(p, size, false, false, __builtin_return_address(0)); }                         \
    void __tsan_write##size(void* p) { races::access(p, size, true, false, __builtin_return_address(0)); }                         \
    void __tsan_unaligned_read##size(void* p) { races::access(p, size, false, false, __builtin_return_address(0)); }               \
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
