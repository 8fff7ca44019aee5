// Graphs: captured or made node by node, instantiated, changed and launched. The nodes of a launch run in any order that their
// edges allow.
#include <algorithm>
#include <cstring>

#include "driver.h"

void check_launch(const LaunchWork& w);

static CUgraph_st* graph_of(CUgraph graph) { return known(graph, "graph"); }

API cuGraphCreate(CUgraph* made, unsigned) {
    return answer([&] {
        *made = new CUgraph_st;
        driver.handles.insert(*made);
    });
}

API cuGraphDestroy(CUgraph graph) {
    return answer([&] { graph_of(graph), driver.handles.erase(graph); });  // its nodes stay: graphs that run name theirs by them
}

API cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_t* count) {
    return answer([&] {
        auto& all = graph_of(graph)->nodes;
        for (size_t k = 0; nodes && k < std::min(*count, all.size()); ++k) nodes[k] = all[k].get();
        *count = all.size();
    });
}

API cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* kind) {
    return answer([&] { *kind = node->work.kind; });
}

static CUgraphNode added(CUgraph graph, const CUgraphNode* after, size_t count, Work work) {
    auto node = std::make_unique<CUgraphNode_st>();
    node->work = std::move(work);
    node->number = graph_of(graph)->nodes.size();
    for (size_t k = 0; k < count; ++k) node->after.push_back(after[k]->number);
    graph->nodes.push_back(std::move(node));
    return graph->nodes.back().get();
}

API cuGraphAddEmptyNode(CUgraphNode* made, CUgraph graph, const CUgraphNode* after, size_t count) {
    return answer([&] { *made = added(graph, after, count, Work{.context = current()}); });
}

// kernel nodes

static Work kernel_work(const CUDA_KERNEL_NODE_PARAMS& p) {
    CUfunc_st* function = known(p.func, "function");
    const cuda_host_kernel& k = *function->kernel;
    LaunchWork w{function, {p.gridDimX, p.gridDimY, p.gridDimZ}, {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes, {}};
    w.parameters.resize(k.bytes);
    if (p.kernelParams) {
        for (int n = 0; n < k.count; ++n) memcpy(w.parameters.data() + k.parameters[n].offset, p.kernelParams[n], k.parameters[n].size);
    } else {
        check(p.extra || !k.count, CUDA_ERROR_INVALID_VALUE, "no parameters");
        size_t bytes = 0;
        for (int n = 0; p.extra && p.extra[n] != CU_LAUNCH_PARAM_END; n += 2) {
            if (p.extra[n] == CU_LAUNCH_PARAM_BUFFER_SIZE) bytes = *(size_t*)p.extra[n + 1];
        }
        check(bytes == k.bytes, CUDA_ERROR_INVALID_VALUE, "parameters of another size than the kernel's");
        for (int n = 0; p.extra && p.extra[n] != CU_LAUNCH_PARAM_END; n += 2) {
            if (p.extra[n] == CU_LAUNCH_PARAM_BUFFER_POINTER) memcpy(w.parameters.data(), p.extra[n + 1], k.bytes);
        }
    }
    check_launch(w);
    return Work{.kind = CU_GRAPH_NODE_TYPE_KERNEL, .what = k.name, .context = current(), .launch = std::move(w)};
}

API cuGraphAddKernelNode(CUgraphNode* made, CUgraph graph, const CUgraphNode* after, size_t count, const CUDA_KERNEL_NODE_PARAMS* p) {
    return answer([&] { *made = added(graph, after, count, kernel_work(*p)); });
}

// ``kernelParams`` point into the node, as a driver's do.
API cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* p) {
    return answer([&] {
        check(node->work.kind == CU_GRAPH_NODE_TYPE_KERNEL, CUDA_ERROR_INVALID_VALUE, "not a kernel's node");
        LaunchWork& w = node->work.launch;
        static std::map<CUgraphNode, std::vector<void*>> kept;
        std::vector<void*>& places = kept[node];
        places.clear();
        for (int n = 0; n < w.function->kernel->count; ++n) places.push_back(w.parameters.data() + w.function->kernel->parameters[n].offset);
        *p = {};
        p->func = w.function;
        p->gridDimX = w.grid[0], p->gridDimY = w.grid[1], p->gridDimZ = w.grid[2];
        p->blockDimX = w.block[0], p->blockDimY = w.block[1], p->blockDimZ = w.block[2];
        p->sharedMemBytes = (unsigned)w.dynamic;
        p->kernelParams = places.data();
    });
}

API cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
    return answer([&] { node->work = kernel_work(*p); });
}

// other nodes

static Work copy_work(const CUDA_MEMCPY3D& c) {
    check(c.Height <= 1 && c.Depth <= 1, CUDA_ERROR_NOT_SUPPORTED, "the stand-in copies rows only");
    Side from{c.srcMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c.srcHost : (uintptr_t)c.srcDevice, c.srcMemoryType != CU_MEMORYTYPE_HOST, nullptr};
    Side to{c.dstMemoryType == CU_MEMORYTYPE_HOST ? (uintptr_t)c.dstHost : (uintptr_t)c.dstDevice, c.dstMemoryType != CU_MEMORYTYPE_HOST, nullptr};
    from.address += c.srcXInBytes, to.address += c.dstXInBytes;
    return Work{.kind = CU_GRAPH_NODE_TYPE_MEMCPY, .what = "a copy of a graph", .context = current(), .copy = {to, from, c.WidthInBytes}};
}

API cuGraphAddMemcpyNode(CUgraphNode* made, CUgraph graph, const CUgraphNode* after, size_t count, const CUDA_MEMCPY3D* c, CUcontext) {
    return answer([&] { *made = added(graph, after, count, copy_work(*c)); });
}

static Work fill_work(const CUDA_MEMSET_NODE_PARAMS& p) {
    check(p.height <= 1, CUDA_ERROR_NOT_SUPPORTED, "the stand-in fills rows only");
    FillWork fill{(uintptr_t)p.dst, p.value, p.elementSize, p.width};
    return Work{.kind = CU_GRAPH_NODE_TYPE_MEMSET, .what = "a fill of a graph", .context = current(), .fill = fill};
}

API cuGraphAddMemsetNode(CUgraphNode* made, CUgraph graph, const CUgraphNode* after, size_t count, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
    return answer([&] { *made = added(graph, after, count, fill_work(*p)); });
}

// instantiated graphs

API cuGraphInstantiateWithFlags(CUgraphExec* made, CUgraph graph, unsigned long long) {
    return answer([&] {
        auto exec = new CUgraphExec_st;
        exec->context = current();
        exec->graph = graph_of(graph);
        for (auto& node : graph->nodes) exec->works.push_back(node->work), exec->after.push_back(node->after);
        driver.handles.insert(exec);
        *made = exec;
    });
}

API cuGraphInstantiateWithParams(CUgraphExec* made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS*) {
    return cuGraphInstantiateWithFlags(made, graph, 0);
}

API cuGraphExecDestroy(CUgraphExec exec) {
    return answer([&] { known(exec, "graph"), driver.handles.erase(exec); });
}

static Work& work_of(CUgraphExec exec, CUgraphNode node) {
    known(exec, "graph");
    check(node && node->number < exec->works.size() && exec->graph->nodes[node->number].get() == node, CUDA_ERROR_INVALID_VALUE,
          "a node of another graph");
    return exec->works[node->number];
}

API cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* p) {
    return answer([&] {
        Work& work = work_of(exec, node);
        check(work.kind == CU_GRAPH_NODE_TYPE_KERNEL, CUDA_ERROR_INVALID_VALUE, "not a kernel's node");
        work = kernel_work(*p);
    });
}

API cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* c, CUcontext) {
    return answer([&] { work_of(exec, node) = copy_work(*c); });
}

API cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
    return answer([&] { work_of(exec, node) = fill_work(*p); });
}

API cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result) {
    return answer([&] {
        known(exec, "graph"), graph_of(graph);
        bool same = exec->works.size() == graph->nodes.size();
        for (size_t k = 0; same && k < exec->works.size(); ++k) {
            same = exec->works[k].kind == graph->nodes[k]->work.kind && exec->after[k] == graph->nodes[k]->after;
        }
        if (result) result->result = same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
        check(same, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        for (size_t k = 0; k < exec->works.size(); ++k) exec->works[k] = graph->nodes[k]->work;
    });
}

API cuGraphUpload(CUgraphExec exec, CUstream stream) {
    return answer([&] { known(exec, "graph"), stream_of(stream); });
}

static void run_graph(const std::vector<Work>& works, const std::vector<std::vector<size_t>>& after) {
    std::vector<bool> done(works.size());
    for (size_t left = works.size(); left; --left) {
        std::vector<size_t> ready;
        for (size_t k = 0; k < works.size(); ++k) {
            if (!done[k] && std::all_of(after[k].begin(), after[k].end(), [&](size_t before) { return done[before]; })) ready.push_back(k);
        }
        size_t next = driver.seed == 0 ? ready.front() : driver.seed == 1 ? ready.back() : ready[chance(ready.size())];
        run_work(works[next]);
        done[next] = true;
    }
}

API cuGraphLaunch(CUgraphExec exec, CUstream handle) {
    return answer([&] {
        known(exec, "graph");
        CUstream_st* stream = stream_of(handle);
        check(exec->context == stream->context, CUDA_ERROR_INVALID_HANDLE, "a graph of another context");
        ++driver.graph_launches;
        auto works = std::make_shared<std::vector<Work>>(exec->works);  // as they are now, whatever is set later
        auto after = std::make_shared<std::vector<std::vector<size_t>>>(exec->after);
        OpPointer op = issue(stream, Work{.kind = CU_GRAPH_NODE_TYPE_GRAPH, .what = "a graph", .other = [=] { run_graph(*works, *after); }});
        if (op && exec->last && !exec->last->done) op->after.push_back(exec->last);
        if (op) exec->last = op;
    });
}

API cuGraphDebugDotPrint(CUgraph graph, const char*, unsigned) {
    return answer([&] { graph_of(graph); });
}
