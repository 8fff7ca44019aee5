// Streams and events. Work that a stream was given waits in ``driver.pending`` until somebody needs it done; which of the pieces
// that nothing holds back comes next is drawn by lot, so that whoever forgot to wait meets an order that he did not expect.
#include <ctime>

#include <algorithm>

#include "driver.h"

static constexpr size_t MOST_PENDING = 256;

uint64_t chance(uint64_t below) {
    driver.random += 0x9e3779b97f4a7c15ull;
    uint64_t z = driver.random;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return (z ^ z >> 31) % below;
}

static double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static bool is_ready(const Op& op) {
    return std::all_of(op.after.begin(), op.after.end(), [](const OpPointer& before) { return before->done; });
}

static void perform(const OpPointer& op) {
    Context* context = op->work.context;
    std::erase(driver.pending, op);
    try {
        if (!context->fault) run_work(op->work);
    } catch (const Error& error) {
        context->fault = error.code;
        context->fault_text =
            op->work.what.empty() || error.text.starts_with(op->work.what) ? error.text : op->work.what + ": " + error.text;
        driver.last = error.code;
        driver.last_text = context->fault_text;
    }
    op->done = true;
    op->time = now();
    op->after.clear();
    op->work = Work{.context = context};
}

// Does one piece, of those that ``wanted`` is behind or, by lot, of any; the first or last, or a random one.
static void step(const OpPointer& wanted) {
    std::set<Op*> needed;
    bool any = !wanted || driver.seed == 0 || (driver.seed > 1 && chance(3) == 0);
    if (!any) {
        std::vector<Op*> stack{wanted.get()};
        while (!stack.empty()) {
            Op* op = stack.back();
            stack.pop_back();
            if (!op->done && needed.insert(op).second) {
                for (const OpPointer& before : op->after) stack.push_back(before.get());
            }
        }
    }
    std::vector<OpPointer> ready;
    for (const OpPointer& op : driver.pending) {
        if (is_ready(*op) && (any || needed.count(op.get()))) ready.push_back(op);
    }
    check(!ready.empty(), CUDA_ERROR_UNKNOWN, "work that waits for itself");
    perform(driver.seed == 0 ? ready.front() : driver.seed == 1 ? ready.back() : ready[chance(ready.size())]);
}

void finish(const OpPointer& op) {
    while (op && !op->done) step(op);
}

void finish_all(Context* context) {
    for (;;) {
        auto found =
            std::find_if(driver.pending.begin(), driver.pending.end(), [&](auto& op) { return op->work.context == context; });
        if (found == driver.pending.end()) return;
        finish(OpPointer(*found));
    }
}

void some_progress() {
    if (!driver.pending.empty()) step(nullptr);
}

void no_capture(const char* what) {
    for (CUstream_st* s : current()->streams) {
        if (!s->alive || !s->capture || s->capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) continue;
        s->capture->broken = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        throw Error{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, std::string(what) + " while a stream is being captured"};
    }
}

CUstream_st* stream_of(CUstream handle) {
    if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) return &current()->null_stream;
    check(driver.handles.count(handle), CUDA_ERROR_INVALID_HANDLE, "no such stream");
    check(handle->alive, CUDA_ERROR_INVALID_HANDLE, "the stream was destroyed");
    check(handle->context->alive, CUDA_ERROR_CONTEXT_IS_DESTROYED, "the stream's context is destroyed");
    usable(handle->context);
    return handle;
}

static bool is_null(const CUstream_st* s) { return s == &s->context->null_stream; }

static void capture(CUstream_st* stream, Work work) {
    Capture& c = *stream->capture;
    check(c.broken == CUDA_SUCCESS, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    auto node = std::make_unique<CUgraphNode_st>();
    node->work = std::move(work);
    node->after = stream->tips;
    node->number = c.graph->nodes.size();
    stream->tips = {node->number};
    c.graph->nodes.push_back(std::move(node));
    ++driver.captures;
}

OpPointer issue(CUstream_st* stream, Work work) {
    work.context = stream->context;
    if (stream->capture) {
        capture(stream, std::move(work));
        return nullptr;
    }
    auto op = std::make_shared<Op>();
    auto behind = [&](const OpPointer& before) {
        if (before && !before->done) op->after.push_back(before);
    };
    behind(stream->last);
    if (is_null(stream)) {
        for (CUstream_st* other : stream->context->streams) {
            if (!other->is_blocking || !other->alive) continue;
            if (other->capture) {
                other->capture->broken = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
                throw Error{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, ""};
            }
            behind(other->last);
        }
    } else if (stream->is_blocking) {
        behind(stream->context->null_stream.last);
    }
    op->work = std::move(work);
    stream->last = op;
    driver.pending.push_back(op);
    while (driver.pending.size() > MOST_PENDING) step(nullptr);
    return op;
}

// streams

API cuStreamCreateWithPriority(CUstream* made, unsigned flags, int) {
    return answer([&] {
        auto stream = new CUstream_st;
        stream->context = current();
        stream->is_blocking = !(flags & CU_STREAM_NON_BLOCKING);
        stream->context->streams.insert(stream);
        driver.handles.insert(stream);
        *made = stream;
    });
}

API cuStreamCreate(CUstream* made, unsigned flags) { return cuStreamCreateWithPriority(made, flags, 0); }

API cuStreamDestroy(CUstream handle) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        check(!is_null(stream), CUDA_ERROR_INVALID_HANDLE);
        stream->alive = false;  // what it was given is done all the same
        if (stream->last && stream->is_blocking && !stream->last->done) return;
        stream->context->streams.erase(stream);
    });
}

API cuStreamSynchronize(CUstream handle) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        if (stream->capture) {
            stream->capture->broken = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
            throw Error{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "cuStreamSynchronize of a stream that is being captured"};
        }
        finish(stream->last);
        if (is_null(stream)) {
            for (CUstream_st* other : std::set(stream->context->streams)) {
                if (other->is_blocking) finish(other->last);
            }
        }
        usable(stream->context);
    });
}

API cuStreamQuery(CUstream handle) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        check(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        if (!stream->last || stream->last->done) return;
        some_progress();
        throw Error{CUDA_ERROR_NOT_READY, ""};
    });
}

API cuStreamGetCtx(CUstream handle, CUcontext* context) {
    return answer([&] { *context = stream_of(handle)->context; });
}

API cuStreamGetFlags(CUstream handle, unsigned* flags) {
    return answer([&] { *flags = stream_of(handle)->is_blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING; });
}

API cuStreamGetPriority(CUstream handle, int* priority) {
    return answer([&] { stream_of(handle), *priority = 0; });
}

static void host_call(CUstream handle, std::function<void()> call) {
    issue(stream_of(handle), Work{.kind = CU_GRAPH_NODE_TYPE_HOST, .what = "a call of the host", .other = std::move(call)});
}

API cuLaunchHostFunc(CUstream handle, CUhostFn function, void* data) {
    return answer([&] { host_call(handle, [=] { function(data); }); });
}

API cuStreamAddCallback(CUstream handle, CUstreamCallback function, void* data, unsigned) {
    return answer([&] { host_call(handle, [=] { function(handle, CUDA_SUCCESS, data); }); });
}

// events

API cuEventCreate(CUevent* made, unsigned flags) {
    return answer([&] {
        auto event = new CUevent_st;
        event->context = current();
        event->has_time = !(flags & CU_EVENT_DISABLE_TIMING);
        driver.handles.insert(event);
        *made = event;
    });
}

API cuEventDestroy(CUevent event) {
    return answer([&] {
        known(event, "event");
        driver.handles.erase(event);
    });
}

API cuEventRecord(CUevent event, CUstream handle) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        known(event, "event");
        check(event->context == stream->context, CUDA_ERROR_INVALID_HANDLE, "an event of another context");
        if (stream->capture) {
            event->capture = stream->capture;
            event->tips = stream->tips;
            event->op = nullptr;
            return;
        }
        event->capture = nullptr;
        event->op = issue(stream, Work{.what = "an event"});
    });
}

API cuEventRecordWithFlags(CUevent event, CUstream handle, unsigned) { return cuEventRecord(event, handle); }

API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        known(event, "event");
        if (event->capture) {
            if (!stream->capture) {
                stream->capture = event->capture;
                stream->capture->streams.insert(stream);
                stream->tips.clear();
            }
            check(stream->capture == event->capture, CUDA_ERROR_STREAM_CAPTURE_MERGE);
            for (size_t tip : event->tips) {
                if (std::find(stream->tips.begin(), stream->tips.end(), tip) == stream->tips.end()) stream->tips.push_back(tip);
            }
            return;
        }
        check(!stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "waits for an event of work that is not captured");
        if (!event->op || event->op->done) return;
        OpPointer wait = issue(stream, Work{.what = "a wait"});
        wait->after.push_back(event->op);
    });
}

API cuEventSynchronize(CUevent event) {
    return answer([&] {
        known(event, "event");
        check(!event->capture, CUDA_ERROR_CAPTURED_EVENT);
        finish(event->op);
        usable(event->context);
    });
}

API cuEventQuery(CUevent event) {
    return answer([&] {
        known(event, "event");
        check(!event->capture, CUDA_ERROR_CAPTURED_EVENT);
        usable(event->context);
        if (!event->op || event->op->done) return;
        some_progress();
        throw Error{CUDA_ERROR_NOT_READY, ""};
    });
}

API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
    return answer([&] {
        known(start, "event"), known(end, "event");
        check(start->op && end->op && start->has_time && end->has_time, CUDA_ERROR_INVALID_HANDLE);
        check(start->op->done && end->op->done, CUDA_ERROR_NOT_READY);
        *milliseconds = (float)(end->op->time - start->op->time);
    });
}

// capture

static unsigned long long captures = 0;

API cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        check(!is_null(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the null stream cannot be captured");
        check(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
        stream->capture = std::make_shared<Capture>();
        stream->capture->graph = new CUgraph_st;
        stream->capture->origin = stream;
        stream->capture->mode = mode;
        stream->capture->number = ++captures;
        stream->capture->streams = {stream};
        stream->tips.clear();
    });
}

// The nodes behind which nothing comes in a stream that the origin did not wait for.
static bool is_joined(const Capture& c) {
    std::set<size_t> reached;
    std::vector<size_t> stack = c.origin->tips;
    while (!stack.empty()) {
        size_t k = stack.back();
        stack.pop_back();
        if (reached.insert(k).second) stack.insert(stack.end(), c.graph->nodes[k]->after.begin(), c.graph->nodes[k]->after.end());
    }
    return reached.size() == c.graph->nodes.size();
}

API cuStreamEndCapture(CUstream handle, CUgraph* made) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        *made = nullptr;
        std::shared_ptr<Capture> c = stream->capture;
        check(c != nullptr, CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
        check(c->origin == stream, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
        bool joined = is_joined(*c);
        for (CUstream_st* s : c->streams) s->capture = nullptr, s->tips.clear();
        check(c->broken == CUDA_SUCCESS, c->broken);
        check(joined, CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a stream that took part was not waited for");
        driver.handles.insert(c->graph);
        *made = c->graph;
    });
}

API cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) {
    return answer([&] {
        const auto& c = stream_of(handle)->capture;
        *status = !c          ? CU_STREAM_CAPTURE_STATUS_NONE
                  : c->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                              : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    });
}

#define OLD extern "C" __attribute__((visibility("default"))) CUresult

// As CUDA 11.3 and 12 have them, without data of edges; drivers keep such names.
OLD cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status, cuuint64_t* number, CUgraph* graph,
                              const CUgraphNode** nodes, size_t* count) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        const auto& c = stream->capture;
        *status = c ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
        if (c && number) *number = c->number;
        if (c && graph) *graph = c->graph;
        static thread_local std::vector<CUgraphNode> tips;
        tips.clear();
        if (c) {
            for (size_t k : stream->tips) tips.push_back(c->graph->nodes[k].get());
        }
        if (nodes) *nodes = tips.data();
        if (count) *count = tips.size();
    });
}

#undef cuStreamUpdateCaptureDependencies
OLD cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode* nodes, size_t count, unsigned flags) {
    return answer([&] {
        CUstream_st* stream = stream_of(handle);
        check(stream->capture != nullptr, CUDA_ERROR_ILLEGAL_STATE, "the stream is not being captured");
        if (flags & CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->tips.clear();
        const auto& made = stream->capture->graph->nodes;
        for (size_t k = 0; k < count; ++k) {
            check(nodes[k] && nodes[k]->number < made.size() && made[nodes[k]->number].get() == nodes[k], CUDA_ERROR_INVALID_VALUE,
                  "a node of another graph");
            stream->tips.push_back(nodes[k]->number);
        }
    });
}

API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
    static thread_local CUstreamCaptureMode kept = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::swap(*mode, kept);
    return CUDA_SUCCESS;
}
