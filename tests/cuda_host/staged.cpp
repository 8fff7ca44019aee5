// A copy that a thread begins belongs to its open group, which a commit closes; a wait is for all closed groups but the newest.
#include "staged.h"

#include <deque>

#include "fibers.h"

namespace {

struct Copy {
    void* place;
    const void* from;  // nullptr: zeros
    unsigned group;
};

struct Queue {
    std::deque<Copy> copies;
    unsigned closed = 0;  // groups so far
};

Queue queues[1024];
bool any = false;

}  // namespace

void staged::start_block() {
    if (!any) return;
    for (Queue& queue : queues) queue = {};
    any = false;
}

void cuda_host_copy_begin(void* place, const void* from) {
    Queue& queue = queues[fibers::self()];
    queue.copies.push_back({place, from, queue.closed});
    any = true;
}

void cuda_host_copy_commit() { ++queues[fibers::self()].closed, any = true; }

bool cuda_host_copy_next(unsigned newest, void** place, const void** from) {
    Queue& queue = queues[fibers::self()];
    if (queue.copies.empty() || queue.copies.front().group + newest >= queue.closed) return false;
    *place = queue.copies.front().place, *from = queue.copies.front().from;
    queue.copies.pop_front();
    return true;
}
