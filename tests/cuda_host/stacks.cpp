// x86-64 changes stacks by a few instructions; elsewhere, or with -DCUDA_HOST_UCONTEXT, the C library does.
#include "stacks.h"

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#if !defined __x86_64__ && !defined CUDA_HOST_UCONTEXT
#define CUDA_HOST_UCONTEXT
#endif
#ifdef CUDA_HOST_UCONTEXT
#include <ucontext.h>
#endif

namespace stacks {

constexpr size_t SIZE = 256 << 10, PAGE = 4096;

struct Stack {
    char* memory;  // a guard page, then SIZE bytes
#ifdef CUDA_HOST_UCONTEXT
    ucontext_t context;
#else
    void* pointer;
#endif
};

namespace {

std::vector<Stack*> all, unused;
Stack* current;

Stack* allocated() {
    auto memory = (char*)mmap(nullptr, PAGE + SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    mprotect(memory, PAGE, PROT_NONE);
    auto made = new Stack{};
    made->memory = memory;
    all.push_back(made);
    return made;
}

#ifdef CUDA_HOST_UCONTEXT

ucontext_t scheduler;

void prepare(Stack* s, void (*body)()) {
    getcontext(&s->context);
    s->context.uc_stack.ss_sp = s->memory + PAGE;
    s->context.uc_stack.ss_size = SIZE;
    s->context.uc_link = nullptr;
    makecontext(&s->context, body, 0);
}

#else

void* scheduler;

// Keeps the registers that a function must keep, and the stack pointer in *from; goes on where ``to`` was kept.
extern "C" void cuda_host_change(void** from, void* to);
asm(R"(
    .text
    .local cuda_host_change
    .type cuda_host_change, @function
cuda_host_change:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuda_host_change, .-cuda_host_change
)");

void prepare(Stack* s, void (*body)()) {
    auto top = (void**)(s->memory + PAGE + SIZE);
    *--top = nullptr;  // where ``body`` would return to; with it, the stack is aligned as behind a call
    *--top = (void*)body;
    s->pointer = top - 6;  // the registers, of any value
}

#endif

}  // namespace

Stack* fresh(void (*body)()) {
    if (unused.empty()) unused.push_back(allocated());
    Stack* taken = unused.back();
    unused.pop_back();
    prepare(taken, body);
    return taken;
}

void enter(Stack* stack) {
    current = stack;
#ifdef CUDA_HOST_UCONTEXT
    swapcontext(&scheduler, &stack->context);
#else
    cuda_host_change(&scheduler, stack->pointer);
#endif
}

void to_scheduler(Stack* stack) {
#ifdef CUDA_HOST_UCONTEXT
    swapcontext(&stack->context, &scheduler);
#else
    cuda_host_change(&stack->pointer, scheduler);
#endif
}

void leave_for_good() {
    unused.push_back(current);
    to_scheduler(current);
    abort();
}

void all_are_free() { unused = all; }

bool is_guard(const void* address) {
    for (const Stack* s : all) {
        if (address >= s->memory && address < s->memory + PAGE) return true;
    }
    return false;
}

}  // namespace stacks
