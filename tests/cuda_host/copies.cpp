// Memory as the driver's callers see it: allocations, pools, pinned memory, copies and fills.
#include <cstring>

#include "driver.h"

using memory::Kind;
using memory::Life;

static uintptr_t device_memory(size_t bytes) {
    no_capture("cuMemAlloc");
    return memory::allocate(bytes, Kind::device, Life::live);
}

static void release(uintptr_t start) {
    memory::Allocation* a = memory::whole(start);
    if (a->kind == Kind::device) driver.devices[a->device].used -= a->bytes;
    memory::retire(start);
}

API cuMemAlloc(CUdeviceptr* made, size_t bytes) {
    return answer([&] { *made = device_memory(bytes); });
}

API cuMemAllocPitch(CUdeviceptr* made, size_t* pitch, size_t width, size_t height, unsigned) {
    return answer([&] {
        *pitch = (width + 511) / 512 * 512;
        *made = device_memory(*pitch * height);
    });
}

API cuMemAllocManaged(CUdeviceptr* made, size_t bytes, unsigned) {
    return answer([&] { *made = device_memory(bytes); });
}

API cuMemFree(CUdeviceptr start) {
    return answer([&] {
        Context* context = current();
        if (!start) return;
        no_capture("cuMemFree");
        memory::whole(start);
        finish_all(context);
        release(start);
    });
}

API cuMemAllocAsync(CUdeviceptr* made, size_t bytes, CUstream handle) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        check(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stand-in does not capture allocations");
        uintptr_t start = memory::allocate(bytes, Kind::device, Life::reserved);
        issue(stream, Work{.what = "cuMemAllocAsync", .other = [=] { memory::begin(start); }});
        *made = start;
    });
}

API cuMemFreeAsync(CUdeviceptr start, CUstream handle) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        if (!start) return;
        check(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the stand-in does not capture frees");
        memory::whole(start);
        issue(stream, Work{.what = "cuMemFreeAsync", .other = [=] {
                               memory::Allocation* a = memory::find(start);
                               if (!a || a->start != start || a->life == Life::freed)
                                   throw Error{CUDA_ERROR_ILLEGAL_ADDRESS, "it was freed before"};
                               if (a->life == Life::reserved) {
                                   throw Error{CUDA_ERROR_ILLEGAL_ADDRESS,
                                               "it is not allocated yet: its stream does not wait for the allocation"};
                               }
                               release(start);
                           }});
    });
}

// pools: of one kind; what they would keep is given back

struct CUmemPoolHandle_st {
    int device;
    cuuint64_t threshold = 0;
};

static CUmemPoolHandle_st* pool_of(int number) {
    static std::map<int, CUmemPoolHandle_st> pools;
    device(number);
    auto& found = pools[number];
    found.device = number;
    driver.handles.insert(&found);
    return &found;
}

API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice number) {
    return answer([&] { *pool = pool_of(number); });
}

API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice number) { return cuDeviceGetDefaultMemPool(pool, number); }

API cuDeviceSetMemPool(CUdevice number, CUmemoryPool pool) {
    return answer([&] { device(number), known(pool, "pool"); });
}

API cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
    return answer([&] {
        device(properties->location.id);
        *pool = new CUmemPoolHandle_st{properties->location.id};
        driver.handles.insert(*pool);
    });
}

API cuMemPoolDestroy(CUmemoryPool pool) {
    return answer([&] { known(pool, "pool"), driver.handles.erase(pool); });
}

API cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
    return answer([&] { known(pool, "pool"); });
}

API cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void* value) {
    return answer([&] {
        known(pool, "pool");
        if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->threshold = *(cuuint64_t*)value;
    });
}

API cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute which, void* value) {
    return answer([&] {
        known(pool, "pool");
        if (which == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
            *(cuuint64_t*)value = pool->threshold;
        else if (which <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
            *(int*)value = 1;
        else
            *(cuuint64_t*)value = device(pool->device).used;
    });
}

API cuMemAllocFromPoolAsync(CUdeviceptr* made, size_t bytes, CUmemoryPool pool, CUstream handle) {
    CUresult found = answer([&] { known(pool, "pool"); });
    return found ? found : cuMemAllocAsync(made, bytes, handle);
}

API cuMemGetInfo(size_t* free, size_t* total) {
    return answer([&] {
        const Device& d = driver.devices[current()->device];
        *total = d.memory;
        *free = d.memory - d.used;
    });
}

API cuMemGetAddressRange(CUdeviceptr* start, size_t* bytes, CUdeviceptr address) {
    return answer([&] {
        memory::Allocation* a = memory::find(address);
        check(a && a->life != Life::freed, CUDA_ERROR_INVALID_VALUE, "no allocation is there");
        if (start) *start = a->start;
        if (bytes) *bytes = a->bytes;
    });
}

API cuPointerGetAttribute(void* value, CUpointer_attribute which, CUdeviceptr address) {
    return answer([&] {
        memory::Allocation* a = memory::find(address);
        check(a && a->life != Life::freed, CUDA_ERROR_INVALID_VALUE, "the driver does not know this address");
        switch (which) {
            case CU_POINTER_ATTRIBUTE_CONTEXT: *(CUcontext*)value = a->context; break;
            case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
                *(unsigned*)value = a->kind == Kind::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
                break;
            case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *(CUdeviceptr*)value = address; break;
            case CU_POINTER_ATTRIBUTE_HOST_POINTER: *(void**)value = a->kind == Kind::device ? nullptr : (void*)address; break;
            case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *(int*)value = a->device; break;
            case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *(CUdeviceptr*)value = a->start; break;
            case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *(size_t*)value = a->bytes; break;
            default: throw Error{CUDA_ERROR_NOT_SUPPORTED, "an attribute that the stand-in has not"};
        }
    });
}

// pinned memory

API cuMemHostAlloc(void** made, size_t bytes, unsigned) {
    return answer([&] { *made = (void*)memory::allocate(bytes, Kind::pinned, Life::live); });
}

API cuMemAllocHost(void** made, size_t bytes) { return cuMemHostAlloc(made, bytes, 0); }

API cuMemFreeHost(void* start) {
    return answer([&] {
        current();
        check(memory::whole((uintptr_t)start)->kind == Kind::pinned, CUDA_ERROR_INVALID_VALUE);
        release((uintptr_t)start);
    });
}

API cuMemHostRegister(void* start, size_t bytes, unsigned) {
    return answer([&] { memory::register_host(start, bytes); });
}

API cuMemHostUnregister(void* start) {
    return answer([&] { current(), memory::unregister_host(start); });
}

API cuMemHostGetDevicePointer(CUdeviceptr* found, void* start, unsigned) {
    return answer([&] {
        memory::Allocation* a = memory::find((uintptr_t)start);
        check(a && a->kind != Kind::device, CUDA_ERROR_INVALID_VALUE);
        *found = (CUdeviceptr)start;
    });
}

API cuMemHostGetFlags(unsigned* flags, void*) {
    *flags = 0;
    return CUDA_SUCCESS;
}

// copies

static bool is_pageable(const Side& side) {
    memory::Allocation* a = side.is_device ? nullptr : memory::find(side.address);
    return !side.is_device && !(a && (a->kind != Kind::device));
}

static void check_side(const Side& side, size_t bytes, const char* what, bool at_run) {
    if (side.staged || (!side.is_device && is_pageable(side))) return;
    memory::must_lie(side.address, bytes, what, at_run);
}

void run_copy(const Work& work) {
    const CopyWork& c = work.copy;
    check_side(c.from, c.bytes, "the source", true);
    check_side(c.to, c.bytes, "the target", true);
    memmove((void*)c.to.address, c.from.staged ? (void*)c.from.staged->data() : (void*)c.from.address, c.bytes);
}

static Side on_device(CUdeviceptr address) { return {(uintptr_t)address, true, nullptr}; }
static Side on_host(const void* address) { return {(uintptr_t)address, false, nullptr}; }
static Side anywhere(CUdeviceptr address) {
    memory::Allocation* a = memory::find(address);
    return a && a->kind == Kind::device && a->life != Life::freed ? on_device(address) : on_host((void*)address);
}

// ``waits``: whether the call returns when the copy is done, whatever the memory.
static void copy(Side to, Side from, size_t bytes, CUstream_st* stream, bool waits) {
    check_side(from, bytes, "the source", false);
    check_side(to, bytes, "the target", false);
    if (!bytes) return;
    const char* what = !to.is_device ? "a copy to the host" : from.is_device ? "a copy on the device" : "a copy to the device";
    Work work{.kind = CU_GRAPH_NODE_TYPE_MEMCPY, .what = what, .copy = {to, from, bytes}};
    if (waits && stream->capture) throw Error{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, what};
    if (waits) no_capture(what);
    if (!stream->capture && from.address && is_pageable(from)) {
        auto first = (const char*)from.address;
        work.copy.from.staged = std::make_shared<std::vector<char>>(first, first + bytes);
    }
    bool is_late = !stream->capture && is_pageable(to);
    OpPointer op = issue(stream, std::move(work));
    if (waits || is_late) {
        finish(op);
        usable(stream->context);
    }
}

API cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes) {
    return answer([&] { copy(on_device(to), on_host(from), bytes, stream_of(nullptr), true); });
}
API cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes) {
    return answer([&] { copy(on_host(to), on_device(from), bytes, stream_of(nullptr), true); });
}
API cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return answer([&] { copy(on_device(to), on_device(from), bytes, stream_of(nullptr), false); });
}
API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    return answer([&] { copy(anywhere(to), anywhere(from), bytes, stream_of(nullptr), true); });
}
API cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream s) {
    return answer([&] { copy(on_device(to), on_host(from), bytes, stream_of(s), false); });
}
API cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream s) {
    return answer([&] { copy(on_host(to), on_device(from), bytes, stream_of(s), false); });
}
API cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    return answer([&] { copy(on_device(to), on_device(from), bytes, stream_of(s), false); });
}
API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream s) {
    return answer([&] { copy(anywhere(to), anywhere(from), bytes, stream_of(s), false); });
}
API cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
    return answer([&] { copy(on_device(to), on_device(from), bytes, stream_of(nullptr), true); });
}
API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream s) {
    return answer([&] { copy(on_device(to), on_device(from), bytes, stream_of(s), false); });
}

// fills

void run_fill(const Work& work) {
    const FillWork& f = work.fill;
    memory::must_lie(f.address, f.count * f.width, "a fill", true);
    for (size_t k = 0; k < f.count; ++k) memcpy((char*)f.address + k * f.width, &f.value, f.width);
}

static CUresult fill(CUdeviceptr address, unsigned value, unsigned width, size_t count, CUstream s) {
    return answer([&] {
        CUstream_st* stream = stream_of(s);
        memory::must_lie(address, count * width, "a fill", false);
        check(address % width == 0, CUDA_ERROR_INVALID_VALUE, "a fill of misaligned memory");
        if (!count) return;
        issue(stream,
              Work{.kind = CU_GRAPH_NODE_TYPE_MEMSET, .what = "a fill", .fill = {(uintptr_t)address, value, width, count}});
    });
}

API cuMemsetD8(CUdeviceptr to, unsigned char value, size_t count) { return fill(to, value, 1, count, nullptr); }
API cuMemsetD16(CUdeviceptr to, unsigned short value, size_t count) { return fill(to, value, 2, count, nullptr); }
API cuMemsetD32(CUdeviceptr to, unsigned value, size_t count) { return fill(to, value, 4, count, nullptr); }
API cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream s) { return fill(to, value, 1, count, s); }
API cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream s) { return fill(to, value, 2, count, s); }
API cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream s) { return fill(to, value, 4, count, s); }
