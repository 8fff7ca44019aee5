// Modules, functions and launches. An image is a header and a library of the host that g++ made of kernels (kernels.py).
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver.h"
#include "fibers.h"

extern "C" void* __tls_get_addr(void*);

// A temporary file of some bytes, which may end too early: writing them tells, where reading them would end the process.
struct File {
    int number = -1;
    char path[32] = "/tmp/cuda-host-XXXXXX";
    File(const void* data, size_t bytes) {
        number = mkstemp(path);
        check(number >= 0, CUDA_ERROR_OPERATING_SYSTEM, "no temporary file");
        check(write(number, data, bytes) == (ssize_t)bytes, CUDA_ERROR_INVALID_IMAGE, "the image is cut short");
    }
    ~File() {
        if (number >= 0) close(number), unlink(path);
    }
};

struct Module {
    std::string code;  // the bytes of the library
    void* library = nullptr;
    char* shared = nullptr;  // the thread-local memory of the library, which is the shared memory of its kernels
    size_t shared_bytes = 0;
    char* text = nullptr;
    size_t text_bytes = 0;
    Context* context = nullptr;
    std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
    ~Module() {
        if (library) dlclose(library);
    }
};

struct CUmod_st {
    std::shared_ptr<Module> module;
};

namespace {

struct Header {
    char magic[8];
    uint32_t version, architecture;
    uint64_t bytes;
    uint32_t crc, unused;
};

uint32_t crc32(const unsigned char* data, size_t bytes) {
    static const std::vector<uint32_t> table = [] {
        std::vector<uint32_t> made(256);
        for (uint32_t k = 0; k < 256; ++k) {
            uint32_t c = k;
            for (int bit = 0; bit < 8; ++bit) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
            made[k] = c;
        }
        return made;
    }();
    uint32_t c = 0xffffffffu;
    for (size_t k = 0; k < bytes; ++k) c = table[(c ^ data[k]) & 0xff] ^ c >> 8;
    return ~c;
}

void load(Module& m, const void* image) {
    Header h;
    memcpy(&h, image, sizeof h);
    if (!memcmp(h.magic, "\177ELF", 4))
        throw Error{CUDA_ERROR_NO_BINARY_FOR_GPU, "a cubin of a real device; the stand-in runs images of its own"};
    check(!memcmp(h.magic, "CUDAHOST", 8) && h.version == 1, CUDA_ERROR_INVALID_IMAGE, "no image of the stand-in");
    const Device& d = driver.devices[m.context->device];
    bool fits = (int)h.architecture / 10 == d.major && (int)h.architecture % 10 <= d.minor;
    if (!fits) {
        throw Error{CUDA_ERROR_NO_BINARY_FOR_GPU, "an image for sm_" + std::to_string(h.architecture) + " on a device of sm_" +
                                                      std::to_string(d.major) + std::to_string(d.minor)};
    }
    auto data = (const unsigned char*)image + sizeof h;
    File file(data, h.bytes);
    check(crc32(data, h.bytes) == h.crc, CUDA_ERROR_INVALID_IMAGE, "the image is damaged");
    m.library = dlopen(file.path, RTLD_NOW | RTLD_LOCAL);
    if (!m.library) throw Error{CUDA_ERROR_INVALID_IMAGE, dlerror()};
    m.code.assign((const char*)data, h.bytes);
}

// The code of a library, and its thread-local memory for this thread of the host; made at the first look.
// Where a library's shared memory and its code are.
void find_shared(Module& m) {
    link_map* map;
    dlinfo(m.library, RTLD_DI_LINKMAP, &map);
    auto look = [](dl_phdr_info* info, size_t, void* to) {
        auto [m, map] = *(std::pair<Module*, link_map*>*)to;
        if (info->dlpi_addr != map->l_addr || strcmp(info->dlpi_name, map->l_name)) return 0;
        for (int k = 0; k < info->dlpi_phnum; ++k) {
            const auto& part = info->dlpi_phdr[k];
            if (part.p_type == PT_TLS) m->shared_bytes = part.p_memsz;
            if (part.p_flags & PF_X) m->text = (char*)info->dlpi_addr + part.p_vaddr, m->text_bytes = part.p_memsz;
        }
        return 1;
    };
    std::pair<Module*, link_map*> to{&m, map};
    m.shared_bytes = 0;
    dl_iterate_phdr(look, &to);
    size_t number = 0;
    dlinfo(m.library, RTLD_DI_TLS_MODID, &number);
    m.shared = nullptr;
    if (!m.shared_bytes || !number) return;
    dlinfo(m.library, RTLD_DI_TLS_DATA, &m.shared);
    if (m.shared) return;
    struct {
        unsigned long module, offset;
    } index{number, 0};
    m.shared = (char*)__tls_get_addr(&index);
}

}  // namespace

static CUresult load_module(CUmodule* made, const void* image) {
    return answer([&] {
        auto module = std::make_shared<Module>();
        module->context = current();
        no_capture("cuModuleLoadData");
        load(*module, image);
        *made = new CUmod_st{module};
        driver.handles.insert(*made);
    });
}

API cuModuleLoadDataEx(CUmodule* made, const void* image, unsigned count, CUjit_option* options, void** values) {
    // No compiler has anything to say: what is in the buffers for its messages is nobody's.
    for (unsigned k = 0; k < count; ++k)
        if (options[k] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[k] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) values[k] = nullptr;
    return load_module(made, image);
}
API cuModuleLoadData(CUmodule* made, const void* image) { return load_module(made, image); }
API cuModuleLoadFatBinary(CUmodule* made, const void* image) { return load_module(made, image); }

API cuModuleLoad(CUmodule* made, const char* name) {
    std::string bytes;
    if (FILE* file = fopen(name, "rb")) {
        char part[4096];
        for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) bytes.append(part, n);
        fclose(file);
        return load_module(made, bytes.data());
    }
    return CUDA_ERROR_FILE_NOT_FOUND;
}

API cuModuleUnload(CUmodule handle) {
    return answer([&] {
        known(handle, "module");
        finish_all(handle->module->context);
        driver.handles.erase(handle);
        for (auto& [name, function] : handle->module->functions) driver.handles.erase(function.get()), function->module = nullptr;
        handle->module = nullptr;
    });
}

API cuModuleGetFunction(CUfunction* found, CUmodule handle, const char* name) {
    return answer([&] {
        known(handle, "module");
        void* kernel = dlsym(handle->module->library, ("cuda_host_kernel_" + std::string(name)).c_str());
        check(kernel != nullptr, CUDA_ERROR_NOT_FOUND, name);
        auto& function = handle->module->functions[name];
        if (!function) {
            function = std::make_unique<CUfunc_st>();
            function->kernel = (const cuda_host_kernel*)kernel;
            function->module = handle->module;
            driver.handles.insert(function.get());
        }
        *found = function.get();
    });
}

API cuModuleGetGlobal(CUdeviceptr* found, size_t* bytes, CUmodule handle, const char* name) {
    return answer([&] {
        known(handle, "module");
        void* place = dlsym(handle->module->library, name);
        check(place != nullptr, CUDA_ERROR_NOT_FOUND, name);
        if (found) *found = (CUdeviceptr)place;
        if (bytes) *bytes = 0;
    });
}

// functions

API cuFuncGetAttribute(int* value, CUfunction_attribute which, CUfunction handle) {
    return answer([&] {
        known(handle, "function");
        const Device& d = driver.devices[handle->module->context->device];
        switch (which) {
            case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
                *value = handle->kernel->most_threads ? handle->kernel->most_threads : 1024;
                break;
            case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
                find_shared(*handle->module), *value = (int)handle->module->shared_bytes;
                break;
            case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 32; break;
            case CU_FUNC_ATTRIBUTE_PTX_VERSION:
            case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = d.major * 10 + d.minor; break;
            case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = handle->most_dynamic; break;
            default: *value = 0;
        }
    });
}

API cuFuncSetAttribute(CUfunction handle, CUfunction_attribute which, int value) {
    return answer([&] {
        known(handle, "function");
        if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) return;
        check(value >= 0 && value <= 227 << 10, CUDA_ERROR_INVALID_VALUE, "more shared memory than a block may have");
        handle->most_dynamic = value;
    });
}

API cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache) {
    return answer([&] { known(handle, "function"); });
}

// PyCUDA says the block's shape twice; the launch's own is what counts.
API cuFuncSetBlockShape(CUfunction handle, int, int, int) {
    return answer([&] { known(handle, "function"); });
}

API cuFuncSetSharedSize(CUfunction handle, unsigned) {
    return answer([&] { known(handle, "function"); });
}

API cuFuncGetModule(CUmodule*, CUfunction) { return CUDA_ERROR_NOT_SUPPORTED; }

API cuFuncGetName(const char** name, CUfunction handle) {
    return answer([&] { *name = known(handle, "function")->kernel->name; });
}

API cuFuncGetParamInfo(CUfunction handle, size_t number, size_t* offset, size_t* bytes) {
    return answer([&] {
        const cuda_host_kernel& k = *known(handle, "function")->kernel;
        check(number < (size_t)k.count, CUDA_ERROR_INVALID_VALUE);
        if (offset) *offset = k.parameters[number].offset;
        if (bytes) *bytes = k.parameters[number].size;
    });
}

static int resident(CUfunction handle, int threads, size_t dynamic) {
    known(handle, "function");
    find_shared(*handle->module);
    check(threads > 0, CUDA_ERROR_INVALID_VALUE);
    size_t shared = handle->module->shared_bytes + dynamic + 1024;
    return (int)std::min<size_t>({(size_t)32, (size_t)(2048 / ((threads + 31) / 32 * 32)), (228u << 10) / shared});
}

API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads, size_t dynamic) {
    return answer([&] { *blocks = resident(handle, threads, dynamic); });
}

API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction handle, int threads, size_t dynamic, unsigned) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, handle, threads, dynamic);
}

API cuOccupancyMaxPotentialBlockSize(int* grid, int* block, CUfunction handle, CUoccupancyB2DSize of, size_t dynamic, int limit) {
    return answer([&] {
        int most = handle->kernel->most_threads ? handle->kernel->most_threads : 1024;
        *block = limit ? std::min(limit, most) : most;
        *grid = 4 * resident(handle, *block, of ? of(*block) : dynamic);
    });
}

// launches

// ", line 7": where in the text of a module's kernels an address of their code is; nothing where that is not known.
static std::string line_of(const Module& m, const void* at) {
    Dl_info info;
    if (!at || !dladdr(at, &info)) return "";
    File file(m.code.data(), m.code.size());
    char command[200], found[400];
    snprintf(command, sizeof command, "addr2line -i -e %s %#zx 2>/dev/null", file.path,
             (size_t)((char*)at - (char*)info.dli_fbase));
    int line = 0;
    if (FILE* output = popen(command, "r")) {
        while (fgets(found, sizeof found, output)) {  // the functions of our headers that are inlined there come first
            const char* colon = strstr(found, "kernels.cu:");
            if (colon && !line) line = atoi(colon + strlen("kernels.cu:"));
        }
        pclose(output);
    }
    return line ? ", line " + std::to_string(line) : "";
}

static std::string named(const cuda_host_kernel& k) { return k.name; }

// The parameters, packed, of either way to give them.
static std::vector<char> packed(const cuda_host_kernel& k, void** one_by_one, void** extra) {
    if (one_by_one || !extra) {
        std::vector<char> made(k.bytes);
        check(one_by_one || !k.count, CUDA_ERROR_INVALID_VALUE, "no parameters");
        for (int n = 0; n < k.count; ++n) memcpy(made.data() + k.parameters[n].offset, one_by_one[n], k.parameters[n].size);
        return made;
    }
    const char* buffer = nullptr;
    size_t bytes = 0;
    for (int n = 0; extra[n] != CU_LAUNCH_PARAM_END; n += 2) {
        if (extra[n] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = (const char*)extra[n + 1];
        else if (extra[n] == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(size_t*)extra[n + 1];
        else
            throw Error{CUDA_ERROR_INVALID_VALUE, "an unknown way to give parameters"};
    }
    if (bytes != k.bytes) {
        throw Error{CUDA_ERROR_INVALID_VALUE,
                    named(k) + " takes " + std::to_string(k.bytes) + " bytes of parameters, not " + std::to_string(bytes)};
    }
    return std::vector<char>(buffer, buffer + k.bytes);
}

void check_launch(const LaunchWork& w) {
    const cuda_host_kernel& k = *w.function->kernel;
    uint64_t threads = (uint64_t)w.block[0] * w.block[1] * w.block[2];
    for (int axis = 0; axis < 3; ++axis)
        check(w.grid[axis] && w.block[axis], CUDA_ERROR_INVALID_VALUE, "a grid or block of nothing");
    check(w.grid[0] <= 0x7fffffff && w.grid[1] <= 65535 && w.grid[2] <= 65535, CUDA_ERROR_INVALID_VALUE, "too many blocks");
    check(threads <= 1024 && w.block[2] <= 64, CUDA_ERROR_INVALID_VALUE, "too many threads in a block");
    if (k.most_threads && threads > (unsigned)k.most_threads) {
        throw Error{CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                    named(k) + " is bound to " + std::to_string(k.most_threads) + " threads, not " + std::to_string(threads)};
    }
    check(w.dynamic <= (size_t)w.function->most_dynamic, CUDA_ERROR_INVALID_VALUE,
          "more dynamic shared memory than the function's attribute allows");
}

API cuLaunchKernel(CUfunction handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned dynamic, CUstream stream, void** one_by_one, void** extra) {
    return answer([&] {
        CUstream_st* s = stream_of(stream);
        known(handle, "function");
        check(handle->module->context == s->context, CUDA_ERROR_INVALID_HANDLE, "a function of another context");
        LaunchWork w{handle, {gx, gy, gz}, {bx, by, bz}, dynamic, packed(*handle->kernel, one_by_one, extra)};
        check_launch(w);
        issue(s, Work{.kind = CU_GRAPH_NODE_TYPE_KERNEL, .what = named(*handle->kernel), .launch = std::move(w)});
    });
}

API cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction handle, void** one_by_one, void** extra) {
    return cuLaunchKernel(handle, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                          c->sharedMemBytes, c->hStream, one_by_one, extra);
}

// A pointer that a kernel is given is null or of memory that a device can reach.
static void check_pointers(const cuda_host_kernel& k, const std::vector<char>& parameters) {
    for (int n = 0; n < k.count; ++n) {
        if (!k.parameters[n].is_pointer) continue;
        uintptr_t address;
        memcpy(&address, parameters.data() + k.parameters[n].offset, sizeof address);
        if (!address) continue;
        std::string what = named(k) + ": parameter " + std::to_string(n);
        memory::Allocation* a = memory::find(address);
        if (!a)
            throw Error{CUDA_ERROR_ILLEGAL_ADDRESS, what + " points to no memory of a device" + memory::about((void*)address)};
        if (a->life == memory::Life::freed) throw Error{CUDA_ERROR_ILLEGAL_ADDRESS, what + " points to memory that was freed"};
        if (a->life == memory::Life::reserved) {
            throw Error{CUDA_ERROR_ILLEGAL_ADDRESS, what + " points to memory whose allocation its stream does not wait for"};
        }
    }
}

void run_launch(const Work& work) {
    const LaunchWork& w = work.launch;
    const cuda_host_kernel& k = *w.function->kernel;
    check(w.function->module != nullptr, CUDA_ERROR_ILLEGAL_ADDRESS, "the function's module was unloaded");
    find_shared(*w.function->module);
    check_pointers(k, w.parameters);
    std::vector<void*> one_by_one;
    alignas(16) char aligned[4096];
    memcpy(aligned, w.parameters.data(), w.parameters.size());
    for (int n = 0; n < k.count; ++n) one_by_one.push_back(aligned + k.parameters[n].offset);
    fibers::Launch launch{.kernel = &k,
                          .grid = {w.grid[0], w.grid[1], w.grid[2]},
                          .block = {w.block[0], w.block[1], w.block[2]},
                          .dynamic = w.dynamic,
                          .shared = w.function->module->shared,
                          .shared_bytes = w.function->module->shared_bytes,
                          .parameters = one_by_one.data(),
                          .code = w.function->module->text,
                          .code_bytes = w.function->module->text_bytes,
                          .seconds = driver.seconds};
    ++driver.launches;
    memory::only(work.context->device);
    uint64_t order = driver.seed > 1 ? 2 + chance(1ull << 60) : driver.seed;
    fibers::Failure failure = fibers::run(launch, order, memory::about);
    memory::all_devices();
    if (failure.error) throw Error{(CUresult)failure.error, failure.text + line_of(*w.function->module, failure.at)};
    try {
        memory::check_around();
    } catch (const Error& error) {
        throw Error{error.code, named(k) + " " + error.text};
    }
}

void run_work(const Work& work) {
    switch (work.kind) {
        case CU_GRAPH_NODE_TYPE_KERNEL: return run_launch(work);
        case CU_GRAPH_NODE_TYPE_MEMCPY: return run_copy(work);
        case CU_GRAPH_NODE_TYPE_MEMSET: return run_fill(work);
        default:
            if (work.other) work.other();
    }
}

// what tests set and read

#define CONTROL(type) extern "C" __attribute__((visibility("default"))) type

// The order of blocks, threads and streams: 0 as they come, 1 reversed and as late as may be, others by lot.
CONTROL(void) cuda_host_order(uint64_t seed) {
    std::lock_guard<std::recursive_mutex> guard(driver.lock);
    driver.seed = driver.random = seed;
}

// What devices there are; before cuInit.
CONTROL(void) cuda_host_devices(int count, int architecture, size_t memory) {
    std::lock_guard<std::recursive_mutex> guard(driver.lock);
    driver.devices.resize(count);
    for (Device& d : driver.devices) d.major = architecture / 10, d.minor = architecture % 10, d.memory = memory;
}

// How many bytes a device has; what was allocated stays.
CONTROL(void) cuda_host_memory(int device, size_t bytes) {
    std::lock_guard<std::recursive_mutex> guard(driver.lock);
    driver.devices.at(device).memory = bytes;
}

// How long the processor may work on one launch.
CONTROL(void) cuda_host_limit(double seconds) {
    std::lock_guard<std::recursive_mutex> guard(driver.lock);
    driver.seconds = seconds;
}

// Every context works again, as after a new start.
CONTROL(void) cuda_host_forgive() {
    std::lock_guard<std::recursive_mutex> guard(driver.lock);
    for (Device& d : driver.devices) {
        if (d.primary) d.primary->fault = CUDA_SUCCESS;
    }
    driver.last_text.clear();
}

// 0: launches, 1: graph launches, 2: nodes captured, 3: bytes allocated, 4: pieces of work that wait
CONTROL(unsigned long long) cuda_host_count(int which) {
    std::lock_guard<std::recursive_mutex> guard(driver.lock);
    switch (which) {
        case 0: return driver.launches;
        case 1: return driver.graph_launches;
        case 2: return driver.captures;
        case 3: return memory::live_bytes();
        default: return driver.pending.size();
    }
}

// What the last error was.
CONTROL(const char*) cuda_host_error() { return driver.last_text.c_str(); }
