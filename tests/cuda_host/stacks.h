// The stacks of fibers, and how the scheduler and a fiber change places.
#pragma once

namespace stacks {

struct Stack;

// A stack on which ``body`` runs at the first ``enter``; it must end in ``leave_for_good``.
Stack* fresh(void (*body)());

// From the scheduler to a fiber, until that waits or leaves.
void enter(Stack* stack);

// From a fiber back to the scheduler, until it is entered again.
void to_scheduler(Stack* stack);

// From a fiber that is done; its stack is free.
[[noreturn]] void leave_for_good();

// No fiber is left, whatever became of them.
void all_are_free();

// Whether an address is where a stack that is too long runs into.
bool is_guard(const void* address);

}  // namespace stacks
