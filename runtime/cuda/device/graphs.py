"""CUDA graphs, through ``ctypes``, since PyCUDA has none. The work of several steps is captured once and launched as one
graph."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pullback.runtime.cuda.driver.errors import DeviceError

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.device import Device

THREAD_LOCAL = 1
"""Capture mode in which other threads may meanwhile call functions that a capture forbids."""
SET = 1
"""Flag that replaces the dependencies of the next captured node."""


class Graph:
    """A captured graph, ready to launch."""

    __slots__ = ("_device", "handle")

    def __init__(self, device: Device, handle: int) -> None:
        self._device = device
        self.handle = handle

    def launch(self, stream: int) -> None:
        """Launch the graph on a stream, by its handle. Raises DeviceError."""
        status = self._device.launch_graph(self.handle, stream)
        if status:
            _check(status, "launched")

    def __del__(self) -> None:
        self._device.retire_graph(self.handle)


def captured(device: Device, works: Sequence[Callable[[Any], None]], after: Sequence[Sequence[int]]) -> Graph:
    """Return the graph of the work that each of ``works`` enqueues on a stream. Each depends on the earlier ones that
    ``after`` lists, and on no others. Nothing of it runs. Raises DeviceError."""
    driver = device.driver
    with device.capturing as stream:
        handle = ctypes.c_void_p(stream.handle)
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        _check(driver.cuStreamBeginCapture_v2(handle, THREAD_LOCAL), "captured")
        try:
            _capture(driver, stream, handle, works, after)
        except BaseException:
            driver.cuStreamEndCapture(handle, ctypes.byref(graph))
            if graph.value:
                driver.cuGraphDestroy(graph)
            raise
        _check(driver.cuStreamEndCapture(handle, ctypes.byref(graph)), "captured")
        status = driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        driver.cuGraphDestroy(graph)
        _check(status, "made ready")
    return Graph(device, int(ready.value or 0))


def _capture(
    driver: Any, stream: Any, handle: ctypes.c_void_p, works: Sequence[Callable[[Any], None]], after: Sequence[Sequence[int]]
) -> None:
    """Capture each work after the nodes that it depends on. At the end the stream depends on all nodes without dependents."""
    tips: list[tuple[int, ...]] = []
    last: set[int] = set()
    for work, needs in zip(works, after, strict=True):
        _set_dependencies(driver, handle, [node for k in needs for node in tips[k]])
        work(stream)
        last.difference_update(needs)
        last.add(len(tips))
        tips.append(_current_nodes(driver, handle))
    _set_dependencies(driver, handle, [node for k in sorted(last) for node in tips[k]])


def _set_dependencies(driver: Any, handle: ctypes.c_void_p, nodes: Sequence[int]) -> None:
    dependencies = (ctypes.c_void_p * max(len(nodes), 1))(*nodes)
    _check(driver.cuStreamUpdateCaptureDependencies(handle, dependencies, ctypes.c_size_t(len(nodes)), SET), "captured")


def _current_nodes(driver: Any, handle: ctypes.c_void_p) -> tuple[int, ...]:
    """Return the nodes that the next captured work would depend on."""
    status, count, nodes = ctypes.c_int(), ctypes.c_size_t(), ctypes.POINTER(ctypes.c_void_p)()
    capture_id, graph = ctypes.c_ulonglong(), ctypes.c_void_p()
    result = driver.cuStreamGetCaptureInfo_v2(
        handle, ctypes.byref(status), ctypes.byref(capture_id), ctypes.byref(graph), ctypes.byref(nodes), ctypes.byref(count)
    )
    _check(result, "captured")
    return tuple(int(nodes[k] or 0) for k in range(count.value))


def _check(status: int, action: str) -> None:
    if status:
        raise DeviceError(f"a CUDA graph could not be {action} (CUDA error {status})")
