// The threads of a block as fibers, with the checks that a GPU does not make: which barrier, which lanes, which addresses.
#include "fibers.h"

#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <map>
#include <numeric>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#include "alarms.h"
#include "races.h"
#include "stacks.h"
#include "staged.h"

cuda_host_index threadIdx, blockIdx, blockDim, gridDim;

namespace fibers {
namespace {

enum class State { fresh, ready, at_barrier, in_warp, done };

struct Thread {
    cuda_host_index index;
    unsigned number;
    State state;
    stacks::Stack* stack;
    int line;  // of the barrier or warp operation where it waits
    int op;
    unsigned mask;
    uint64_t bits;  // what it gives and, once it may go on, what it gets
    int argument, width;
    const char* what;  // of what all lanes do together: its name, and how
    void (*all)(void** lanes);
};

// The running launch. One at a time: the driver holds its lock meanwhile.
struct Running {
    const Launch* launch = nullptr;
    std::vector<Thread> threads;
    std::vector<unsigned> order;
    unsigned count = 0, done = 0, self = 0, cursor = 0;
    sigjmp_buf escape;
    pid_t host_thread = 0;
    bool in_thread = false;
    Failure failure;
    std::string (*describe)(const void*) = nullptr;
    char *dynamic_region = nullptr, *dynamic = nullptr;
} now;

constexpr size_t DYNAMIC = 256 << 10, PAGE = 4096;
constexpr int FAILED = 719, ILLEGAL_ADDRESS = 700;

std::string where() {
    char text[200];
    const char* name = now.launch->kernel->name;
    if (!now.in_thread) {
        snprintf(text, sizeof text, "%s, block (%u,%u,%u)", name, blockIdx.x, blockIdx.y, blockIdx.z);
    } else {
        snprintf(text, sizeof text, "%s, block (%u,%u,%u), thread (%u,%u,%u)", name, blockIdx.x, blockIdx.y, blockIdx.z,
                 threadIdx.x, threadIdx.y, threadIdx.z);
    }
    return text;
}

[[noreturn]] void stop(int error, const std::string& text, void* at = nullptr) {
    now.failure = {error, where() + ": " + text, at};
    siglongjmp(now.escape, 1);
}

__attribute__((format(printf, 1, 2))) std::string format(const char* how, ...) {
    char text[500];
    va_list values;
    va_start(values, how);
    vsnprintf(text, sizeof text, how, values);
    va_end(values);
    return text;
}

void body() {
    for (;;) {
        now.launch->kernel->call(now.launch->parameters);
        now.threads[now.self].state = State::done;
        ++now.done;
        while (now.cursor < now.count && now.threads[now.order[now.cursor]].state != State::fresh) ++now.cursor;
        if (now.cursor == now.count) stacks::leave_for_good();
        Thread& next = now.threads[now.order[now.cursor++]];  // a thread that never waits leaves its stack to the next
        next.stack = now.threads[now.self].stack;
        now.self = next.number;
        threadIdx = next.index;
        races::start_thread(next.number);
    }
}

uint64_t wait(State state) {
    Thread& self = now.threads[now.self];
    self.state = state;
    stacks::to_scheduler(self.stack);
    return now.threads[now.self].bits;
}

void resume(Thread& t) {
    if (t.state == State::fresh) t.stack = stacks::fresh(body);
    t.state = State::ready;
    now.self = t.number;
    threadIdx = t.index;
    races::start_thread(t.number);
    now.in_thread = true;
    stacks::enter(t.stack);
    now.in_thread = false;
}

bool run_those_that_can() {
    bool any = false;
    for (now.cursor = 0; now.cursor < now.count;) {
        Thread& t = now.threads[now.order[now.cursor++]];
        if (t.state != State::fresh && t.state != State::ready) continue;
        any = true;
        resume(t);
    }
    return any;
}

// Nobody can run: all threads must wait at one barrier.
void pass_barrier() {
    const Thread* first = nullptr;
    int sum = 0;
    for (unsigned k = 0; k < now.count; ++k) {
        Thread& t = now.threads[k];
        if (t.state == State::done) continue;
        if (t.state == State::in_warp) {
            stop(FAILED, format("line %d: thread %u waits for lanes of its mask %08x that do not come here", t.line, k, t.mask));
        }
        if (!first) first = &t;
        if (t.line != first->line || t.op != first->op) {
            stop(FAILED, format("threads of a block wait at different barriers: thread %u at line %d, thread %u at line %d",
                                first->number, first->line, k, t.line));
        }
        sum += t.bits != 0;
    }
    if (now.done) {
        stop(FAILED,
             format("the barrier at line %d is reached by %u of %u threads", first->line, now.count - now.done, now.count));
    }
    races::pass_barrier();
    for (unsigned k = 0; k < now.count; ++k) {
        Thread& t = now.threads[k];
        bool all = sum == (int)now.count;
        t.bits = t.op == BARRIER_COUNT ? sum : t.op == BARRIER_OR ? sum > 0 : t.op == BARRIER_AND ? all : 0;
        t.state = State::ready;
    }
}

void run_block(uint64_t& seed) {
    const Launch& launch = *now.launch;
    memset(launch.shared, 0xff, launch.shared_bytes);
    memset(now.dynamic, 0xff, launch.dynamic);
    for (unsigned k = 0; k < now.count; ++k) {
        const Shape& b = launch.block;
        now.threads[k] = Thread{{k % b.x, k / b.x % b.y, k / (b.x * b.y)}, k, State::fresh};
    }
    if (seed > 1) {
        for (unsigned k = now.count - 1; k; --k) std::swap(now.order[k], now.order[random(seed) % (k + 1)]);
    }
    now.done = 0;
    races::start_block();
    staged::start_block();
    while (now.done < now.count) {
        if (!run_those_that_can()) pass_barrier();
    }
}

void run_blocks(uint64_t seed) {
    const Launch& launch = *now.launch;
    uint64_t all = (uint64_t)launch.grid.x * launch.grid.y * launch.grid.z, step = 1, first = 0;
    if (seed > 1) {
        do step = 1 + random(seed) % all;
        while (std::gcd(step, all) != 1);
        first = random(seed) % all;
    }
    for (uint64_t k = 0; k < all; ++k) {
        uint64_t n = seed == 1 ? all - 1 - k : (first + (unsigned __int128)k * step) % all;
        blockIdx = {(unsigned)(n % launch.grid.x), (unsigned)(n / launch.grid.x % launch.grid.y),
                    (unsigned)(n / launch.grid.x / launch.grid.y)};
        run_block(seed);
    }
}

// faults of the running thread

constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
struct sigaction before[4];

#ifdef __x86_64__
void* code_of(void* context) { return (void*)((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP]; }
#else
void* code_of(void*) { return nullptr; }
#endif

void on_signal(int signal, siginfo_t* info, void* context) {
    if (!now.in_thread || syscall(SYS_gettid) != now.host_thread) {  // not ours: let the earlier handler have it
        for (int k = 0; k < 4; ++k) sigaction(SIGNALS[k], &before[k], nullptr);
        return;
    }
    if (signal == SIGFPE) stop(FAILED, "integer division by zero", code_of(context));
    if (signal == SIGILL) stop(715, "illegal instruction", code_of(context));
    if (stacks::is_guard(info->si_addr)) stop(FAILED, "the stack overflows", code_of(context));
    if (info->si_addr >= now.dynamic + now.launch->dynamic && info->si_addr < now.dynamic_region + DYNAMIC + PAGE) {
        stop(ILLEGAL_ADDRESS,
             format("an address %zu bytes behind the %zu bytes of dynamic shared memory",
                    (size_t)((char*)info->si_addr - now.dynamic - now.launch->dynamic), now.launch->dynamic),
             code_of(context));
    }
    stop(ILLEGAL_ADDRESS, format("illegal address %p", info->si_addr) + now.describe(info->si_addr), code_of(context));
}

// Time is up: stop as soon as the kernel's own code runs, which holds no lock.
void on_alarm(int, siginfo_t*, void* context) {
    void* at = code_of(context);
    if (!now.in_thread || (at && (size_t)((char*)at - now.launch->code) >= now.launch->code_bytes)) return;
    stop(702, format("the launch does not end in %g s: a loop without end, or one that waits for what never comes",
                     now.launch->seconds), at);
}

struct Watch {
    stack_t alternate{}, earlier{};
    static inline char* room = (char*)malloc(SIGSTKSZ + (64 << 10));

    Watch() {
        alternate.ss_sp = room;
        alternate.ss_size = SIGSTKSZ + (64 << 10);
        sigaltstack(&alternate, &earlier);
        struct sigaction action{};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        for (int k = 0; k < 4; ++k) sigaction(SIGNALS[k], &action, &before[k]);
    }

    ~Watch() {
        for (int k = 0; k < 4; ++k) sigaction(SIGNALS[k], &before[k], nullptr);
        sigaltstack(&earlier, nullptr);
    }
};

// warps

unsigned present(unsigned first) { return now.count - first >= 32 ? 0xffffffffu : (1u << (now.count - first)) - 1; }

void check_mask(const Thread& self, unsigned first) {
    const char* what = self.op == TOGETHER      ? self.what
                       : self.op <= SHUFFLE_XOR ? "a shuffle"
                       : self.op == SYNC        ? "__syncwarp"
                                                : "a warp operation";
    unsigned lane = self.number - first;
    if (!(self.mask >> lane & 1))
        stop(FAILED, format("line %d: lane %u calls %s with mask %08x, without itself", self.line, lane, what, self.mask));
    if (self.mask & ~present(first) && self.op != SYNC) {
        stop(FAILED, format("line %d: %s with mask %08x names lanes that the block of %u threads has not", self.line, what,
                            self.mask, now.count));
    }
    for (unsigned k = 0; k < 32; ++k) {
        if (!(self.mask >> k & 1) || first + k >= now.count) continue;
        const Thread& other = now.threads[first + k];
        if (other.state == State::done) {
            stop(FAILED, format("line %d: %s with mask %08x names lane %u, which has returned", self.line, what, self.mask, k));
        }
        if (other.state == State::in_warp && other.line == self.line && other.mask != self.mask) {
            stop(FAILED, format("line %d: %s with mask %08x by lane %u and %08x by lane %u", self.line, what, self.mask, lane,
                                other.mask, k));
        }
    }
}

int source(const Thread& t, int lane) {
    int base = lane / t.width * t.width, inside = lane - base, from = lane;
    switch (t.op) {
        case SHUFFLE: return base + (t.argument & (t.width - 1));
        case SHUFFLE_UP: from = inside - t.argument; break;
        case SHUFFLE_DOWN: from = inside + t.argument; break;
        default: from = inside ^ t.argument; break;
    }
    return from >= 0 && from < t.width ? base + from : lane;
}

// All lanes of a mask are here: what each gets.
void exchange(unsigned mask, unsigned first) {
    if (now.threads[first].op == TOGETHER && mask == ~0u) {
        void* lanes[32];
        for (int k = 0; k < 32; ++k) lanes[k] = (void*)now.threads[first + k].bits;
        now.threads[first].all(lanes);
        for (int k = 0; k < 32; ++k) now.threads[first + k].state = State::ready;
        return;
    }
    uint64_t given[32], ballot = 0, total = 0, least = ~0ull, most = 0, both = ~0ull, either = 0, odd = 0;
    for (int k = 0; k < 32; ++k) {
        if (!(mask >> k & 1) || first + k >= now.count) continue;
        given[k] = now.threads[first + k].bits;
        ballot |= (given[k] & 1) << k;
        total += given[k], both &= given[k], either |= given[k], odd ^= given[k];
        least = std::min(least, given[k]), most = std::max(most, given[k]);
    }
    for (int k = 0; k < 32; ++k) {
        if (!(mask >> k & 1) || first + k >= now.count) continue;
        Thread& t = now.threads[first + k];
        t.state = State::ready;
        if (t.op == SYNC) races::pass_warp(t.number);
        switch (t.op) {
            case BALLOT: t.bits = ballot; break;
            case ALL: t.bits = (ballot & mask) == mask; break;
            case SYNC: t.bits = 0; break;
            case ADD: t.bits = total; break;
            case MIN: t.bits = least; break;
            case MAX: t.bits = most; break;
            case AND: t.bits = both; break;
            case OR: t.bits = either; break;
            case XOR: t.bits = odd; break;
            case MATCH:
                t.bits = 0;
                for (int other = 0; other < 32; ++other)
                    t.bits |= (uint64_t)(mask >> other & 1 && given[other] == given[k]) << other;
                break;
            default: {
                int from = source(t, k);
                t.bits = mask >> from & 1 ? given[from] : ~0ull;  // a lane that takes no part gives poison
            }
        }
    }
}

}  // namespace

unsigned self() { return now.self; }

uint64_t random(uint64_t& state) {
    state += 0x9e3779b97f4a7c15ull;
    uint64_t z = state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

Failure run(const Launch& launch, uint64_t order, std::string (*describe)(const void*)) {
    now.launch = &launch;
    now.describe = describe;
    now.failure = {};
    now.in_thread = false;
    now.host_thread = (pid_t)syscall(SYS_gettid);
    now.count = launch.block.x * launch.block.y * launch.block.z;
    if (!now.dynamic_region) {
        now.dynamic_region = (char*)mmap(nullptr, DYNAMIC + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(now.dynamic_region + DYNAMIC, PAGE, PROT_NONE);
    }
    now.dynamic = now.dynamic_region + DYNAMIC - (launch.dynamic + 15) / 16 * 16;
    now.threads.resize(now.count);
    now.order.resize(now.count);
    for (unsigned k = 0; k < now.count; ++k) now.order[k] = order == 1 ? now.count - 1 - k : k;
    gridDim = {launch.grid.x, launch.grid.y, launch.grid.z};
    blockDim = {launch.block.x, launch.block.y, launch.block.z};
    stacks::all_are_free();
    races::watch_shared((uintptr_t)launch.shared, launch.shared_bytes, (uintptr_t)now.dynamic, launch.dynamic);
    races::start_launch();
    Watch watch;
    alarms::start(launch.seconds, on_alarm);
    if (!sigsetjmp(now.escape, 1)) run_blocks(order);
    alarms::stop();
    races::stop_watching();
    now.in_thread = false;
    return now.failure;
}

}  // namespace fibers

// what kernels call

using namespace fibers;

int cuda_host_barrier(int line, cuda_host_barrier_op op, int value) {
    Thread& self = now.threads[now.self];
    self.line = line, self.op = op, self.bits = value != 0;
    return (int)wait(State::at_barrier);
}

uint64_t cuda_host_warp(int line, cuda_host_warp_op op, unsigned mask, uint64_t bits, int argument, int width) {
    Thread& self = now.threads[now.self];
    self.line = line, self.op = op, self.mask = mask, self.bits = bits, self.argument = argument, self.width = width;
    unsigned first = now.self & ~31u;
    check_mask(self, first);
    self.state = State::in_warp;
    for (unsigned k = 0; k < 32; ++k) {
        if (!(mask >> k & 1) || first + k >= now.count) continue;
        const Thread& other = now.threads[first + k];
        if (other.state != State::in_warp || other.line != line || other.op != op || other.all != self.all) {
            return wait(State::in_warp);
        }
    }
    exchange(mask, first);
    return now.threads[now.self].bits;
}

void cuda_host_together(int line, const char* what, void (*all)(void**), void* mine) {
    Thread& self = now.threads[now.self];
    self.what = what, self.all = all;
    cuda_host_warp(line, TOGETHER, ~0u, (uint64_t)mine, 0, 32);
    now.threads[now.self].all = nullptr;
}

unsigned cuda_host_active_mask() {
    unsigned found = 0, first = now.self & ~31u;
    for (unsigned k = 0; k < 32 && first + k < now.count; ++k)
        found |= (unsigned)(now.threads[first + k].state != State::done) << k;
    return found;
}

void* cuda_host_dynamic() { return now.dynamic; }

void cuda_host_multiple_of_16(int line, const char* what, const void* address) {
    if ((uintptr_t)address % 16) stop(716, format("line %d: %s of 16 bytes at %p, which is no multiple of 16", line, what, address));
}

void cuda_host_shared_16(int line, const char* what, const void* address) {
    const Launch& launch = *now.launch;
    size_t inside = (char*)address - launch.shared, in_dynamic = (char*)address - now.dynamic;
    if (inside + 16 > launch.shared_bytes && in_dynamic + 16 > launch.dynamic) {
        stop(ILLEGAL_ADDRESS, format("line %d: %s of 16 bytes at %p, which are not in shared memory", line, what, address));
    }
    cuda_host_multiple_of_16(line, what, address);
}

static std::string spelled(const char* how, va_list values) {
    char text[500];
    vsnprintf(text, sizeof text, how, values);
    return text;
}

void cuda_host_stop(int error, const char* how, ...) {
    va_list values;
    va_start(values, how);
    stop(error, spelled(how, values));
}

void cuda_host_stop_at(void* at, int error, const char* how, ...) {
    va_list values;
    va_start(values, how);
    stop(error, spelled(how, values), (char*)at - 1);
}
