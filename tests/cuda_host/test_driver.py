"""The stand-in driver, through the real PyCUDA: order of streams, memory, modules, launches, graphs, contexts, devices."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import cuda_host
from tests.cuda_host.kernels import KERNEL, host_text
from tests.support.cuda.targets import needs_host
from tests.support.paths import ROOT

ADD = 'extern "C" __global__ void k(float* x, float by) { x[blockIdx.x * blockDim.x + threadIdx.x] += by; }\n'
COPY = 'extern "C" __global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }\n'
ONES = np.ones(64, np.float32)
ORDERS = range(12)


def api() -> Any:
    """The stand-in, for functions that PyCUDA does not call."""
    return ctypes.CDLL(str(cuda_host.pieces.library()))


def called(name: str, *arguments: Any) -> None:
    status = api()[name](*arguments)
    assert status == 0, f"{name} gives {status}"


def in_each_order(run: Any) -> set[bytes]:
    result = set()
    for seed in ORDERS:
        cuda_host.order(seed)
        result.add(run().tobytes())
    return result


# streams


def two_streams(bench: Any, waits: bool) -> Any:
    """One stream fills memory that another one reads."""
    cuda = bench.driver
    copy, first, second, event = bench.function(COPY), cuda.Stream(1), cuda.Stream(1), cuda.Event()

    def run() -> Any:
        source, target = bench.put(0 * ONES), bench.put(0 * ONES)
        cuda.memset_d32_async(source, 0x3F800000, 64, first)
        event.record(first)
        if waits:
            second.wait_for_event(event)
        copy(source, target, block=(64, 1, 1), stream=second)
        second.synchronize()
        first.synchronize()
        return bench.get(target, ONES)

    return run


def test_a_stream_that_waits_reads_what_the_other_wrote(bench: Any) -> None:
    assert in_each_order(two_streams(bench, True)) == {ONES.tobytes()}


def test_a_missing_wait_shows(bench: Any) -> None:
    assert in_each_order(two_streams(bench, False)) == {ONES.tobytes(), (0 * ONES).tobytes()}


@pytest.mark.parametrize("flags", [0, 1])
def test_the_null_stream_waits_for_streams_that_block_and_for_no_others(bench: Any, flags: int) -> None:
    cuda = bench.driver
    add, stream = bench.function(ADD), cuda.Stream(flags)

    def run() -> Any:
        position, seen = bench.put(0 * ONES), bench.put(0 * ONES)
        add(position, np.float32(1), block=(64, 1, 1), stream=stream)
        cuda.memcpy_dtod(seen, position, ONES.nbytes)
        result = bench.get(seen, ONES)
        stream.synchronize()
        return result

    assert len(in_each_order(run)) == (1 if flags == 0 else 2)


def test_a_pinned_buffer_that_is_reused_before_its_copy_ran_shows(bench: Any) -> None:
    cuda = bench.driver
    stream = cuda.Stream(1)
    pinned = cuda.pagelocked_empty(64, np.float32)

    def run(waits: bool) -> Any:
        position = bench.put(0 * ONES)
        pinned[...] = 1
        cuda.memcpy_htod_async(position, pinned, stream)
        if waits:
            stream.synchronize()
        pinned[...] = 2
        stream.synchronize()
        return bench.get(position, ONES)

    assert in_each_order(lambda: run(True)) == {ONES.tobytes()}
    assert (2 * ONES).tobytes() in in_each_order(lambda: run(False))


def test_a_pinned_buffer_that_is_freed_before_its_copy_ran(bench: Any) -> None:
    cuda = bench.driver
    cuda_host.order(1)
    stream, position = cuda.Stream(1), bench.put(ONES)
    pinned = cuda.pagelocked_empty(64, np.float32)
    cuda.memcpy_htod_async(position, pinned, stream)
    del pinned
    with bench.fails("touches memory that was freed"):
        stream.synchronize()


def test_pageable_memory_is_read_when_the_copy_is_asked_for(bench: Any) -> None:
    cuda = bench.driver
    stream = cuda.Stream(1)

    def run() -> Any:
        position, values = bench.put(0 * ONES), ONES.copy()
        cuda.memcpy_htod_async(position, values, stream)
        values[...] = 7
        stream.synchronize()
        return bench.get(position, ONES)

    assert in_each_order(run) == {ONES.tobytes()}


def test_results_in_pinned_memory_are_there_when_the_stream_is_done(bench: Any) -> None:
    cuda = bench.driver
    cuda_host.order(1)
    stream, position = cuda.Stream(1), bench.put(ONES)
    pinned = cuda.pagelocked_zeros(64, np.float32)
    cuda.memcpy_dtoh_async(pinned, position, stream)
    assert not pinned.any()
    assert cuda_host.counts()["waiting"] == 1
    stream.synchronize()
    assert pinned.all()


def test_events_tell_when_they_are_done(bench: Any) -> None:
    cuda = bench.driver
    cuda_host.order(1)
    add, position, stream = bench.function(ADD), bench.put(ONES), cuda.Stream(1)
    start, end = cuda.Event(), cuda.Event()
    start.record(stream)
    add(position, np.float32(1), block=(64, 1, 1), stream=stream)
    end.record(stream)
    assert not end.query()
    for _ in range(9):
        end.query()
    assert end.query() and stream.is_done()
    assert end.time_since(start) >= 0
    start.record(stream)
    with bench.fails("not ready"):
        end.time_since(start)


# memory


def test_memory_that_is_allocated_in_stream_order(bench: Any) -> None:
    cuda = bench.driver
    add, first, second, event = bench.function(ADD), cuda.Stream(1), cuda.Stream(1), cuda.Event()

    def run(waits: bool) -> Any:
        position = ctypes.c_void_p()
        called("cuMemAllocAsync", ctypes.byref(position), ctypes.c_size_t(256), ctypes.c_void_p(first.handle))
        cuda.memset_d32_async(position.value, 0, 64, first)
        event.record(first)
        if waits:
            second.wait_for_event(event)
        add(np.uint64(position.value), np.float32(1), block=(64, 1, 1), stream=second)
        event.record(second)
        first.wait_for_event(event)
        result = cuda.pagelocked_empty(64, np.float32)
        cuda.memcpy_dtoh_async(result, position.value, first)
        called("cuMemFreeAsync", position, ctypes.c_void_p(first.handle))
        first.synchronize()
        return np.array(result)

    assert in_each_order(lambda: run(True)) == {ONES.tobytes()}
    with bench.fails("an illegal memory access", "whose allocation its stream does not wait for"):
        in_each_order(lambda: run(False))


def test_memory_freed_in_one_stream_while_another_uses_it(bench: Any) -> None:
    cuda = bench.driver
    add, first, second = bench.function(ADD), cuda.Stream(1), cuda.Stream(1)

    def run() -> Any:
        position = ctypes.c_void_p()
        called("cuMemAllocAsync", ctypes.byref(position), ctypes.c_size_t(256), ctypes.c_void_p(first.handle))
        first.synchronize()
        add(np.uint64(position.value), np.float32(1), block=(64, 1, 1), stream=second)
        called("cuMemFreeAsync", position, ctypes.c_void_p(first.handle))
        first.synchronize()
        second.synchronize()
        return ONES

    with bench.fails("parameter 0 points to memory that was freed"):
        in_each_order(run)


def test_out_of_memory_is_an_error_that_passes(bench: Any) -> None:
    cuda = bench.driver
    gc.collect()
    before = cuda_host.counts()["bytes"]
    with cuda_host.memory(0, before + 5_000_000):
        position = cuda.mem_alloc(4_000_000)
        # PyCUDA collects garbage before it gives up: some hundred bytes of earlier tests may be free then, too.
        with pytest.raises(cuda.MemoryError, match=r"2000000 bytes asked for, 100\d{4} free"):
            cuda.mem_alloc(2_000_000)
        free, total = cuda.mem_get_info()
        assert 1_000_000 <= free < 1_010_000 and total == before + 5_000_000
        position.free()
        cuda.mem_alloc(5_000_000).free()
    assert cuda_host.counts()["bytes"] <= before


def test_freeing_twice_and_copies_past_the_end(bench: Any) -> None:
    cuda = bench.driver
    position = bench.put(ONES)
    for call in (
        lambda: cuda.memcpy_htod(position, np.ones(65, np.float32)),
        lambda: bench.get(position, np.ones(65, np.float32)),
    ):
        with bench.fails("is not within one allocation"):
            call()
    with bench.fails("is not within one allocation"):
        cuda.memset_d32(int(position), 0, 65)
    address = ctypes.c_void_p(int(position))
    position.free()
    assert api()["cuMemFree_v2"](address) == 1


# modules and launches


def test_parameters_of_a_wrong_size(bench: Any) -> None:
    add, position = bench.function(ADD), bench.put(ONES)
    with bench.fails("k takes 12 bytes of parameters, not 16"):
        add(position, np.float64(1), block=(64, 1, 1))
    with bench.fails("k takes 12 bytes of parameters, not 8"):
        add(position, block=(64, 1, 1))


def test_a_pointer_of_the_host(bench: Any) -> None:
    add = bench.function(ADD)
    with bench.fails("k: parameter 0 points to no memory of a device"):
        add(np.uint64(ONES.ctypes.data), np.float32(1), block=(64, 1, 1))
        bench.driver.Context.synchronize()


def test_what_a_launch_may_not_ask_for(bench: Any) -> None:
    position = bench.put(ONES)
    bounded = bench.function(ADD.replace("void k", "void __launch_bounds__(32) k"))
    assert bounded.max_threads_per_block == 32
    with bench.fails("k is bound to 32 threads, not 64"):
        bounded(position, np.float32(1), block=(64, 1, 1))
    add = bench.function(ADD)
    for bad in ({"block": (2048, 1, 1)}, {"block": (64, 1, 1), "grid": (1, 70000)}, {"block": (64, 1, 1), "shared": 60000}):
        with bench.fails("invalid argument"):
            add(position, np.float32(1), **bad)
    add.set_attribute(bench.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000)
    add(position, np.float32(1), block=(64, 1, 1), shared=60000)
    np.testing.assert_array_equal(bench.get(position, ONES), 2 * ONES)


def test_images_that_cannot_be_loaded(bench: Any) -> None:
    load, good = bench.driver.module_from_buffer, cuda_host.image(ADD)
    with bench.fails("an image for sm_80 on a device of sm_90"):
        load(cuda_host.image(ADD, 80))
    with bench.fails("the image is damaged"):
        load(good[:5000] + bytes([good[5000] ^ 1]) + good[5001:])
    with bench.fails("no image of the stand-in"):
        load(b"nothing of the kind" * 10)
    with bench.fails("a cubin of a real device"):
        load(b"\x7fELF" + bytes(100))
    with bench.fails("named symbol not found: missing"):
        load(good).get_function("missing")


def test_the_text_keeps_its_lines() -> None:
    kernel = 'extern "C" __global__ void __launch_bounds__(256, 2) a(int* x) {'
    text = f"\n{kernel}\n    extern __shared__ __align__(16) unsigned char y[];\n}}\n"
    result = host_text(text)
    assert result.splitlines()[1:5] == [
        '#line 1 "kernels.cu"', "", kernel, "    unsigned char* y = (unsigned char*)cuda_host_dynamic();",
    ]  # fmt: skip
    assert result.endswith("CUDA_HOST_KERNEL(a, 256)\n")
    assert KERNEL.search('extern "C" __global__ void __launch_bounds__(64) f(')["name"] == "f"


@needs_host
def test_text_that_does_not_compile() -> None:
    with pytest.raises(cuda_host.CompileError, match=r"kernels\.cu:2:.*nonsense"):
        cuda_host.image('extern "C" __global__ void k(float* x) {\n    x[0] = nonsense;\n}\n')


def test_a_fault_stays_until_the_context_is_reset(bench: Any) -> None:
    cuda, position = bench.driver, bench.put(ONES)
    bad = bench.function('extern "C" __global__ void k(float* x) { x[99] = 1; }')
    bad(position, block=(1, 1, 1))
    for call in (cuda.Context.synchronize, lambda: bench.get(position, ONES), lambda: cuda.mem_alloc(4)):
        with pytest.raises(cuda.Error, match=r"illegal memory .*: k, block \(0,0,0\), thread \(0,0,0\): .* 140 bytes behind"):
            call()
    cuda_host.forgive()
    np.testing.assert_array_equal(bench.get(position, ONES), ONES)


# graphs


class Graph:
    """What is launched on a stream and captured."""

    def __init__(self, stream: Any) -> None:
        self.stream = ctypes.c_void_p(stream.handle)
        self.graph, self.executable = ctypes.c_void_p(), ctypes.c_void_p()
        called("cuStreamBeginCapture_v2", self.stream, 0)

    def end(self) -> None:
        called("cuStreamEndCapture", self.stream, ctypes.byref(self.graph))
        called("cuGraphInstantiateWithFlags", ctypes.byref(self.executable), self.graph, ctypes.c_ulonglong(0))

    def launch(self) -> None:
        called("cuGraphLaunch", self.executable, self.stream)


@pytest.mark.parametrize("waits", [True, False])
def test_a_graph_of_two_streams(bench: Any, waits: bool) -> None:
    """A fork and a join; without the first wait of the other stream, its node is not ordered."""
    cuda = bench.driver
    add, copy, first, second = bench.function(ADD), bench.function(COPY), cuda.Stream(1), cuda.Stream(1)
    position, seen = bench.put(ONES), bench.put(0 * ONES)
    fork, join = cuda.Event(), cuda.Event()
    captured = Graph(first)
    if not waits:
        fork.record(first)
    add(position, np.float32(1), block=(64, 1, 1), stream=first)
    if waits:
        fork.record(first)
    second.wait_for_event(fork)
    copy(position, seen, block=(64, 1, 1), stream=second)
    join.record(second)
    first.wait_for_event(join)
    captured.end()

    def run() -> Any:
        cuda.memcpy_htod(position, ONES)
        captured.launch()
        first.synchronize()
        return bench.get(seen, ONES)

    assert in_each_order(run) == ({(2 * ONES).tobytes()} if waits else {ONES.tobytes(), (2 * ONES).tobytes()})
    assert cuda_host.counts()["graph_launches"] >= len(ORDERS)


def test_a_stream_that_is_not_joined_ends_a_capture_badly(bench: Any) -> None:
    cuda = bench.driver
    add, first, second, fork, position = bench.function(ADD), cuda.Stream(1), cuda.Stream(1), cuda.Event(), bench.put(ONES)
    captured = Graph(first)
    fork.record(first)
    second.wait_for_event(fork)
    add(position, np.float32(1), block=(64, 1, 1), stream=second)
    with pytest.raises(AssertionError, match="cuStreamEndCapture gives 904"):
        captured.end()


def test_what_may_not_happen_during_a_capture(bench: Any) -> None:
    cuda = bench.driver
    stream, position = cuda.Stream(), bench.put(ONES)
    for call in (lambda: cuda.mem_alloc(4), stream.synchronize, lambda: bench.get(position, ONES)):
        captured = Graph(stream)
        with pytest.raises(cuda.Error):
            call()
        with pytest.raises(AssertionError, match="cuStreamEndCapture gives 901"):
            captured.end()


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = [
        ("function", ctypes.c_void_p), *((f"size{k}", ctypes.c_uint) for k in range(7)), ("parameters", ctypes.c_void_p),
        ("extra", ctypes.c_void_p), ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p),
    ]  # fmt: skip


def test_the_parameters_of_a_graph_are_changed(bench: Any) -> None:
    cuda = bench.driver
    add, stream, position, other = bench.function(ADD), cuda.Stream(1), bench.put(ONES), bench.put(ONES)
    captured = Graph(stream)
    add(position, np.float32(1), block=(64, 1, 1), stream=stream)
    captured.end()
    nodes, count, now = (ctypes.c_void_p * 1)(), ctypes.c_size_t(1), KernelNode()
    called("cuGraphGetNodes", captured.graph, nodes, ctypes.byref(count))
    called("cuGraphKernelNodeGetParams_v2", ctypes.c_void_p(nodes[0]), ctypes.byref(now))
    values = ctypes.c_uint64(int(other)), ctypes.c_float(5)
    now.parameters = ctypes.addressof(table := (ctypes.c_void_p * 2)(*(ctypes.addressof(v) for v in values)))
    called("cuGraphExecKernelNodeSetParams_v2", captured.executable, ctypes.c_void_p(nodes[0]), ctypes.byref(now))
    del table
    captured.launch()
    stream.synchronize()
    np.testing.assert_array_equal(bench.get(position, ONES), ONES)
    np.testing.assert_array_equal(bench.get(other, ONES), 6 * ONES)


# contexts, devices, threads, processes


def test_two_devices_have_their_own_memory(bench: Any) -> None:
    cuda = bench.driver
    assert cuda.Device.count() == 2
    position, add = bench.put(ONES), bench.function(ADD)
    second = cuda.Device(1).retain_primary_context()
    second.push()
    try:
        with bench.fails("a function of another context"):
            add(position, np.float32(1), block=(64, 1, 1))
        other = bench.function(ADD)
        other(position, np.float32(1), block=(64, 1, 1))
        with bench.fails("k, block (0,0,0), thread (0,0,0)", "byte 0 of an allocation of 256 bytes of device 0"):
            cuda.Context.synchronize()
    finally:
        second.pop()
    np.testing.assert_array_equal(bench.get(position, ONES), ONES)


def test_a_stream_of_a_context_that_is_destroyed(bench: Any) -> None:
    cuda = bench.driver
    context = cuda.Device(0).make_context()
    stream = cuda.Stream()
    handle = ctypes.c_void_p(stream.handle)
    context.pop()
    context.detach()
    assert api()["cuStreamSynchronize"](handle) == 709


def test_threads_need_a_context_of_their_own(bench: Any) -> None:
    cuda, said = bench.driver, []

    def work() -> None:
        try:
            cuda.mem_alloc(4)
        except cuda.Error as error:
            said.append(str(error))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said and "context" in said[0]


def test_a_forked_process_cannot_use_cuda(bench: Any) -> None:
    child = os.fork()
    if not child:
        os._exit(api()["cuInit"](0))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


@needs_host
def test_a_script_over_the_stand_in(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import pycuda.driver as cuda, sys\nprint(cuda.Device(0).name(), sys.argv[1:])\n")
    command = [sys.executable, "-m", "tests.cuda_host", str(script), "7"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "stand-in 0 on the host ['7']\n", done.stderr
