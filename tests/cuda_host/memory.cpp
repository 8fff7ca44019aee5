// Allocations: each ends at a page that cannot be touched, has known bytes before it and is poison until it is written.
#include <sys/mman.h>

#include <cstring>
#include <deque>

#include "driver.h"
#include "races.h"

namespace memory {
namespace {

constexpr size_t PAGE = 4096, ALIGNMENT = 16, BEFORE = 64;
constexpr unsigned char AROUND = 0xff;     // read as a float, it is NaN
constexpr size_t ARENA = size_t(1) << 36;  // of addresses; all allocations are there, one behind the other

constexpr size_t REMEMBERED = 4096;

std::map<uintptr_t, Allocation> all, gone;  // by start; and those that were freed
std::deque<uintptr_t> order_of_freeing;
uintptr_t arena = 0, next_base = 0;
bool is_used_up = false;
bool is_split = false;

size_t rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void protect(const Allocation& a, int how) {
    if (a.length) mprotect((void*)(a.base + PAGE), a.length - 2 * PAGE, how);
}

// Addresses for ``length`` bytes. None is used twice before all were used once.
uintptr_t addresses(size_t length) {
    if (!arena) {
        void* found = mmap(nullptr, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        check(found != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY, "the host has no addresses left");
        arena = next_base = (uintptr_t)found;
        races::watch_devices(arena, ARENA);
    }
    check(length < ARENA / 4, CUDA_ERROR_OUT_OF_MEMORY, "more than the stand-in has addresses for");
    if (next_base + length > arena + ARENA) {
        gone.clear(), order_of_freeing.clear();
        next_base = arena;
        is_used_up = true;
    }
    for (auto& [start, a] : all) {
        if (!is_used_up) break;
        if (a.length && a.base < next_base + length && a.base + a.length > next_base) next_base = a.base + a.length;
    }
    check(next_base + length <= arena + ARENA, CUDA_ERROR_OUT_OF_MEMORY, "the stand-in has no addresses left");
    next_base += length;
    return next_base - length;
}

}  // namespace

uintptr_t allocate(size_t bytes, Kind kind, Life life) {
    check(bytes > 0, CUDA_ERROR_INVALID_VALUE, "an allocation of no bytes");
    Context* context = current();
    Device& d = driver.devices[context->device];
    if (kind == Kind::device && (bytes > d.memory || d.used + bytes > d.memory)) {
        throw Error{CUDA_ERROR_OUT_OF_MEMORY,
                    std::to_string(bytes) + " bytes asked for, " + std::to_string(d.memory - d.used) + " free"};
    }
    size_t room = rounded(bytes, ALIGNMENT), length = rounded(room + BEFORE, PAGE) + 2 * PAGE;
    uintptr_t base = addresses(length), start = base + length - PAGE - room;
    all[start] = {start, base, bytes, length, context->device, kind, Life::reserved, context};
    if (kind == Kind::device) d.used += bytes;
    if (life == Life::live) begin(start);
    return start;
}

void begin(uintptr_t start) {
    Allocation& a = all.at(start);
    protect(a, PROT_READ | PROT_WRITE);
    memset((void*)(a.start - BEFORE), AROUND, BEFORE + rounded(a.bytes, ALIGNMENT));
    a.life = Life::live;
}

void retire(uintptr_t start) {
    Allocation& a = all.at(start);
    protect(a, PROT_NONE);
    if (a.length) madvise((void*)(a.base + PAGE), a.length - 2 * PAGE, MADV_DONTNEED);
    races::forget(a.base, a.length);
    a.life = Life::freed;
    gone[start] = a;
    all.erase(start);
    order_of_freeing.push_back(start);
    if (order_of_freeing.size() > REMEMBERED) gone.erase(order_of_freeing.front()), order_of_freeing.pop_front();
}

static Allocation* within(std::map<uintptr_t, Allocation>& map, uintptr_t address) {
    auto next = map.upper_bound(address);
    if (next == map.begin()) return nullptr;
    Allocation& a = std::prev(next)->second;
    return address <= a.start + a.bytes ? &a : nullptr;
}

Allocation* find(uintptr_t address) {
    Allocation* found = within(all, address);
    return found ? found : within(gone, address);
}

Allocation* whole(uintptr_t start) {
    check(!gone.count(start), CUDA_ERROR_INVALID_VALUE, "it was freed before");
    auto found = all.find(start);
    check(found != all.end(), CUDA_ERROR_INVALID_VALUE, "no allocation begins there");
    return &found->second;
}

void must_lie(uintptr_t address, size_t bytes, const char* what, bool at_run) {
    if (!bytes) return;
    CUresult code = at_run ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_INVALID_VALUE;
    Allocation* a = find(address);
    if (!a || address + bytes > a->start + a->bytes) {
        throw Error{code, std::string(what) + " of " + std::to_string(bytes) + " bytes is not within one allocation" +
                              about((void*)(address + bytes))};
    }
    if (a->life == Life::freed) throw Error{code, std::string(what) + " touches memory that was freed"};
    if (at_run && a->life == Life::reserved) {
        throw Error{code, std::string(what) + " touches memory whose allocation its stream does not wait for"};
    }
}

std::string about(const void* pointer) {
    auto address = (uintptr_t)pointer;
    Allocation* freed = within(gone, address);
    if (freed)
        return ": byte " + std::to_string(address - freed->start) + " of an allocation of " + std::to_string(freed->bytes) +
               " bytes that was freed";
    const Allocation* nearest = nullptr;
    auto next = all.upper_bound(address);
    if (next != all.begin()) nearest = &std::prev(next)->second;
    if (next != all.end() && next->second.length && address >= next->second.base) {
        return ": " + std::to_string(next->first - address) + " bytes before an allocation of " +
               std::to_string(next->second.bytes) + " bytes";
    }
    if (!nearest || address > nearest->start + nearest->bytes + (1 << 20)) return "";
    std::string of = "an allocation of " + std::to_string(nearest->bytes) + " bytes";
    if (address >= nearest->start + nearest->bytes) {
        return ": " + std::to_string(address - nearest->start - nearest->bytes) + " bytes behind the end of " + of;
    }
    std::string inside = ": byte " + std::to_string(address - nearest->start) + " of " + of;
    if (nearest->life == Life::reserved) return inside + " that its stream does not wait for";
    return inside + " of device " + std::to_string(nearest->device);
}

void check_around() {
    for (auto& [start, a] : all) {
        if (a.life != Life::live || a.kind != Kind::device || (is_split && a.device != current()->device)) continue;
        auto before = (const unsigned char*)start - BEFORE, behind = (const unsigned char*)start + a.bytes;
        for (size_t k = 0; k < BEFORE; ++k) {
            if (before[k] == AROUND) continue;
            memset((void*)before, AROUND, BEFORE);
            throw Error{CUDA_ERROR_ILLEGAL_ADDRESS, "wrote " + std::to_string(BEFORE - k) + " bytes before an allocation of " +
                                                        std::to_string(a.bytes) + " bytes"};
        }
        for (size_t k = 0; k < rounded(a.bytes, ALIGNMENT) - a.bytes; ++k) {
            if (behind[k] == AROUND) continue;
            memset((void*)behind, AROUND, rounded(a.bytes, ALIGNMENT) - a.bytes);
            throw Error{CUDA_ERROR_ILLEGAL_ADDRESS, "wrote " + std::to_string(k) + " bytes behind the end of an allocation of " +
                                                        std::to_string(a.bytes) + " bytes"};
        }
    }
}

void only(int device) {
    for (auto& [start, a] : all) {
        if (a.kind != Kind::device || a.life != Life::live || a.device == device) continue;
        bool is_peer = false;
        for (auto& [from, to] : driver.peers) is_peer |= from->device == device && to->device == a.device;
        if (is_peer) continue;
        protect(a, PROT_NONE);
        is_split = true;
    }
}

void all_devices() {
    if (!is_split) return;
    for (auto& [start, a] : all) {
        if (a.kind == Kind::device && a.life == Life::live) protect(a, PROT_READ | PROT_WRITE);
    }
    is_split = false;
}

void forget(Context* context) {
    std::vector<uintptr_t> left;
    for (auto& [start, a] : all) {
        if (a.context == context && a.kind != Kind::registered) left.push_back(start);
    }
    for (uintptr_t start : left) {
        Allocation& a = all.at(start);
        if (a.kind == Kind::device) driver.devices[a.device].used -= a.bytes;
        retire(start);
    }
}

size_t live_bytes() {
    size_t sum = 0;
    for (auto& [start, a] : all) sum += a.kind == Kind::device ? a.bytes : 0;
    return sum;
}

void register_host(void* start, size_t bytes) {
    check(!find((uintptr_t)start), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    Context* context = current();
    all[(uintptr_t)start] = {(uintptr_t)start, 0, bytes, 0, context->device, Kind::registered, Life::live, context};
}

void unregister_host(void* start) {
    auto found = all.find((uintptr_t)start);
    check(found != all.end() && found->second.kind == Kind::registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    all.erase(found);
}

}  // namespace memory
