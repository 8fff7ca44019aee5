// Initialisation, devices, contexts, and what an error says.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "driver.h"

State driver;
static thread_local std::vector<Context*> stack;

CUresult answer(const std::function<void()>& body, bool needs_init) {
    std::lock_guard<std::recursive_mutex> guard(driver.lock);
    try {
        if (needs_init) {
            check(driver.is_on, CUDA_ERROR_NOT_INITIALIZED);
            check(driver.process == getpid(), CUDA_ERROR_NOT_INITIALIZED, "this process was forked after CUDA was used");
        }
        body();
        return CUDA_SUCCESS;
    } catch (const Error& error) {
        driver.last = error.code;
        driver.last_text = error.text;
        return error.code;
    }
}

Device& device(CUdevice number) {
    check(number >= 0 && number < (int)driver.devices.size(), CUDA_ERROR_INVALID_DEVICE);
    return driver.devices[number];
}

Context* usable(CUcontext handle) {
    auto context = static_cast<Context*>(handle);
    check(context != nullptr, CUDA_ERROR_INVALID_CONTEXT);
    check(context->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    if (context->fault) throw Error{context->fault, context->fault_text};
    return context;
}

Context* current() {
    check(!stack.empty() && stack.back(), CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
    return usable(stack.back());
}

static Context* made(CUdevice number, unsigned flags, bool is_primary) {
    auto context = new Context;  // never deleted: a handle of a destroyed context must be known as one
    context->device = number;
    context->flags = flags;
    context->is_primary = is_primary;
    context->null_stream.context = context;
    return context;
}

static void destroy(Context* context) {
    try {
        finish_all(context);
    } catch (const Error&) {}
    memory::forget(context);
    context->alive = false;
}

API cuInit(unsigned flags) {
    auto start = [&] {
        check(flags == 0, CUDA_ERROR_INVALID_VALUE);
        check(!driver.is_on || driver.process == getpid(), CUDA_ERROR_NOT_INITIALIZED, "this process was forked after CUDA was used");
        check(!driver.devices.empty(), CUDA_ERROR_NO_DEVICE);
        driver.is_on = true;
        driver.process = getpid();
    };
    return answer(start, false);
}

API cuDriverGetVersion(int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

API cuGetErrorName(CUresult error, const char** text) {
    static std::map<int, std::string> kept;
    std::string& name = kept[error];
    name = "CUDA_ERROR_" + std::to_string(error);
    *text = name.c_str();
    return CUDA_SUCCESS;
}

static const char* words(CUresult error) {
    switch ((int)error) {
        case 0: return "no error";
        case 1: return "invalid argument";
        case 2: return "out of memory";
        case 3: return "initialization error";
        case 100: return "no CUDA-capable device is detected";
        case 101: return "invalid device ordinal";
        case 200: return "device kernel image is invalid";
        case 201: return "invalid device context";
        case 209: return "no kernel image is available for execution on the device";
        case 218: return "a PTX JIT compilation failed";
        case 400: return "invalid resource handle";
        case 500: return "named symbol not found";
        case 600: return "device not ready";
        case 700: return "an illegal memory access was encountered";
        case 701: return "too many resources requested for launch";
        case 702: return "the launch timed out and was terminated";
        case 709: return "context is destroyed";
        case 710: return "device-side assert triggered";
        case 715: return "an illegal instruction was encountered";
        case 716: return "misaligned address";
        case 719: return "unspecified launch failure";
        case 801: return "operation not supported";
        case 900: return "operation not permitted when stream is capturing";
        case 901: return "operation failed due to a previous error during capture";
        case 904: return "operation failed due to unjoined work";
        case 906: return "operation would make the legacy stream depend on a capturing blocking stream";
        default: return "error of the stand-in driver";
    }
}

API cuGetErrorString(CUresult error, const char** text) {
    static thread_local std::string kept;
    kept = words(error);
    if (driver.last == error && !driver.last_text.empty()) kept += ": " + driver.last_text;
    *text = kept.c_str();
    return CUDA_SUCCESS;
}

// devices

API cuDeviceGetCount(int* count) {
    return answer([&] { *count = (int)driver.devices.size(); });
}

API cuDeviceGet(CUdevice* found, int number) {
    return answer([&] { device(number), *found = number; });
}

API cuDeviceGetName(char* name, int room, CUdevice number) {
    return answer([&] { device(number), snprintf(name, room, "stand-in %d on the host", number); });
}

API cuDeviceGetUuid(CUuuid* found, CUdevice number) {
    return answer([&] { device(number), memset(found, number + 1, sizeof *found); });
}

API cuDeviceTotalMem(size_t* bytes, CUdevice number) {
    return answer([&] { *bytes = device(number).memory; });
}

API cuDeviceComputeCapability(int* major, int* minor, CUdevice number) {
    return answer([&] { *major = device(number).major, *minor = device(number).minor; });
}

API cuDeviceGetPCIBusId(char* name, int room, CUdevice number) {
    return answer([&] { device(number), snprintf(name, room, "0000:%02x:00.0", number + 1); });
}

static const std::map<int, int> ATTRIBUTES = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 48 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 227 << 10},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 228 << 10},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 64 << 10},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1500000},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 2600000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 0},
    {CU_DEVICE_ATTRIBUTE_INTEGRATED, 0},
};

API cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice number) {
    return answer([&] {
        const Device& d = device(number);
        if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) {
            *value = d.major;
        } else if (which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR) {
            *value = d.minor;
        } else {
            auto found = ATTRIBUTES.find(which);
            *value = found == ATTRIBUTES.end() ? 0 : found->second;
        }
    });
}

// contexts

API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice number) {
    return answer([&] {
        Device& d = device(number);
        if (!d.primary) d.primary = made(number, d.flags, true);
        ++d.retained;
        *context = d.primary;
    });
}

static void drop_primary(Device& d) {
    if (d.primary) destroy(d.primary);
    d.primary = nullptr;
    d.retained = 0;
}

API cuDevicePrimaryCtxRelease(CUdevice number) {
    return answer([&] {
        Device& d = device(number);
        check(d.retained > 0, CUDA_ERROR_INVALID_CONTEXT);
        if (--d.retained == 0) drop_primary(d);
    });
}

API cuDevicePrimaryCtxReset(CUdevice number) {
    return answer([&] { drop_primary(device(number)); });
}

API cuDevicePrimaryCtxSetFlags(CUdevice number, unsigned flags) {
    return answer([&] { device(number).flags = flags; });
}

API cuDevicePrimaryCtxGetState(CUdevice number, unsigned* flags, int* active) {
    return answer([&] { *flags = device(number).flags, *active = device(number).primary != nullptr; });
}

API cuCtxCreate(CUcontext* context, CUctxCreateParams*, unsigned flags, CUdevice number) {
    return answer([&] {
        device(number);
        stack.push_back(made(number, flags, false));
        *context = stack.back();
    });
}

API cuCtxDestroy(CUcontext context) {
    return answer([&] {
        auto found = static_cast<Context*>(context);
        check(found && found->alive, CUDA_ERROR_INVALID_CONTEXT);
        destroy(found);
        if (!stack.empty() && stack.back() == found) stack.pop_back();
    });
}

API cuCtxAttach(CUcontext* context, unsigned) {
    return answer([&] { *context = current(); });
}

// Of a primary context it takes back one retain, as PyCUDA asks for when its object of one dies.
API cuCtxDetach(CUcontext context) {
    for (size_t k = 0; k < driver.devices.size(); ++k)
        if (context && driver.devices[k].primary == context) return cuDevicePrimaryCtxRelease((CUdevice)k);
    return cuCtxDestroy(context);
}

API cuCtxPushCurrent(CUcontext context) {
    return answer([&] {
        check(context && static_cast<Context*>(context)->alive, CUDA_ERROR_INVALID_CONTEXT);
        stack.push_back(static_cast<Context*>(context));
    });
}

API cuCtxPopCurrent(CUcontext* context) {
    return answer([&] {
        check(!stack.empty(), CUDA_ERROR_INVALID_CONTEXT);
        if (context) *context = stack.back();
        stack.pop_back();
    });
}

API cuCtxSetCurrent(CUcontext context) {
    return answer([&] {
        if (!stack.empty()) stack.pop_back();
        if (context) stack.push_back(static_cast<Context*>(context));
    });
}

API cuCtxGetCurrent(CUcontext* context) {
    return answer([&] { *context = stack.empty() ? nullptr : stack.back(); });
}

API cuCtxGetDevice(CUdevice* found) {
    return answer([&] { *found = current()->device; });
}

API cuCtxGetFlags(unsigned* flags) {
    return answer([&] { *flags = current()->flags; });
}

API cuCtxGetApiVersion(CUcontext, unsigned* version) {
    return answer([&] { *version = 3020; });
}

API cuCtxSynchronize() {
    return answer([&] {
        Context* context = current();
        no_capture("cuCtxSynchronize");
        finish_all(context);
        current();
    });
}

API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    return answer([&] { current(), *least = 0, *greatest = -5; });
}

API cuCtxGetLimit(size_t* value, CUlimit) {
    return answer([&] { current(), *value = 1024; });
}

API cuCtxSetLimit(CUlimit, size_t) {
    return answer([&] { current(); });
}

API cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
    return answer([&] { device(from), device(to), *can = from != to; });
}

API cuCtxEnablePeerAccess(CUcontext to, unsigned) {
    return answer([&] {
        bool is_new = driver.peers.insert({current(), usable(to)}).second;
        check(is_new, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    });
}

API cuCtxDisablePeerAccess(CUcontext to) {
    return answer([&] { check(driver.peers.erase({current(), usable(to)}), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED); });
}
