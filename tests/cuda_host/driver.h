// The stand-in driver: what its files share. cuda.h gives every function's type.
#pragma once
#include <cuda.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernel.h"

#define API extern "C" __attribute__((visibility("default"))) CUresult CUDAAPI

struct Error {
    CUresult code;
    std::string text;
};

struct CUctx_st;
typedef CUctx_st Context;
struct Module;
struct Capture;

// What a stream does: a launch, a copy, a fill, or something else.

struct CUfunc_st {
    const cuda_host_kernel* kernel = nullptr;
    std::shared_ptr<Module> module;
    int most_dynamic = 48 << 10;
};

struct LaunchWork {
    CUfunc_st* function = nullptr;
    unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    size_t dynamic = 0;
    std::vector<char> parameters;  // packed
};

struct Side {
    uintptr_t address = 0;
    bool is_device = false;
    std::shared_ptr<std::vector<char>> staged;  // bytes of pageable memory, taken when the copy was asked for
};

struct CopyWork {
    Side to, from;
    size_t bytes = 0;
};

struct FillWork {
    uintptr_t address = 0;
    unsigned value = 0, width = 1;
    size_t count = 0;
};

struct Work {
    CUgraphNodeType kind = CU_GRAPH_NODE_TYPE_EMPTY;
    std::string what;
    Context* context = nullptr;
    LaunchWork launch;
    CopyWork copy;
    FillWork fill;
    std::function<void()> other;
};

void run_work(const Work& work);
void run_launch(const Work& work);
void run_copy(const Work& work);
void run_fill(const Work& work);

// One piece of work of a stream, to be done behind others.
struct Op {
    Work work;
    std::vector<std::shared_ptr<Op>> after;
    bool done = false;
    double time = 0;  // milliseconds, when it was done
};
using OpPointer = std::shared_ptr<Op>;

struct CUstream_st {
    Context* context = nullptr;
    bool alive = true, is_blocking = true;
    OpPointer last;
    std::shared_ptr<Capture> capture;
    std::vector<size_t> tips;  // of the capture: what the next node comes behind
};

struct CUevent_st {
    Context* context = nullptr;
    bool alive = true, has_time = true;
    OpPointer op;
    std::shared_ptr<Capture> capture;
    std::vector<size_t> tips;
};

struct CUgraphNode_st {
    Work work;
    std::vector<size_t> after;
    size_t number = 0;
};

struct CUgraph_st {
    bool alive = true;
    std::vector<std::unique_ptr<CUgraphNode_st>> nodes;
};

struct CUgraphExec_st {
    bool alive = true;
    Context* context = nullptr;
    CUgraph_st* graph = nullptr;  // whose nodes name those of this
    std::vector<Work> works;
    std::vector<std::vector<size_t>> after;
    OpPointer last;  // a graph does not run beside itself
};

struct Capture {
    CUgraph_st* graph = nullptr;
    CUstream_st* origin = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUresult broken = CUDA_SUCCESS;
    unsigned long long number = 0;
    std::set<CUstream_st*> streams;
};

struct CUctx_st {
    CUdevice device = 0;
    bool alive = true, is_primary = false;
    unsigned flags = 0;
    CUresult fault = CUDA_SUCCESS;
    std::string fault_text;
    CUstream_st null_stream;
    std::set<CUstream_st*> streams;
};

struct Device {
    int major = 9, minor = 0;
    size_t memory = size_t(4) << 30, used = 0;
    Context* primary = nullptr;
    int retained = 0;
    unsigned flags = 0;
};

struct State {
    std::recursive_mutex lock;
    bool is_on = false;
    int process = 0;
    std::vector<Device> devices = std::vector<Device>(2);
    std::set<void*> handles;                 // of everything that was made and not destroyed
    std::vector<OpPointer> pending;          // in the order in which they were asked for
    uint64_t seed = 0, random = 0;
    double seconds = 60;  // of the processor for one launch
    std::set<std::pair<Context*, Context*>> peers;
    std::string last_text;
    CUresult last = CUDA_SUCCESS;
    unsigned long long launches = 0, threads = 0, graph_launches = 0, captures = 0;
};
extern State driver;

// Runs the body of a function of the driver: one thread at a time, errors as what it returns.
CUresult answer(const std::function<void()>& body, bool needs_init = true);

inline void check(bool holds, CUresult code, const char* text = "") {
    if (!holds) throw Error{code, text};
}

// contexts
Context* current();                // of this thread; throws
Context* usable(CUcontext handle); // throws
Device& device(CUdevice number);

// streams
CUstream_st* stream_of(CUstream handle);
OpPointer issue(CUstream_st* stream, Work work);  // null if it was captured
void finish(const OpPointer& op);
void finish_all(Context* context);
void some_progress();
void no_capture(const char* what);
uint64_t chance(uint64_t below);

template <class T> T* known(T* handle, const char* what) {
    if (!handle || !driver.handles.count(handle)) throw Error{CUDA_ERROR_INVALID_HANDLE, std::string("no such ") + what};
    return handle;
}

// memory
namespace memory {
enum class Kind { device, pinned, registered };
enum class Life { reserved, live, freed };

struct Allocation {
    uintptr_t start, base;
    size_t bytes, length;
    int device;
    Kind kind;
    Life life;
    Context* context;
};

uintptr_t allocate(size_t bytes, Kind kind, Life life);  // throws when there is none
void begin(uintptr_t start);                             // a reserved one is live
void retire(uintptr_t start);                            // a live one is freed
Allocation* find(uintptr_t address);                     // the allocation in which it lies or ends, of any life
Allocation* whole(uintptr_t start);                      // that starts there; throws if there is none
void must_lie(uintptr_t address, size_t bytes, const char* what, bool at_run);  // within device or pinned memory; throws
void forget(Context* context);
std::string about(const void* address);
void check_around();                 // throws if a byte next to an allocation was written
void only(int device);               // the others cannot be touched
void all_devices();
size_t live_bytes();
void register_host(void* start, size_t bytes);
void unregister_host(void* start);
}  // namespace memory
