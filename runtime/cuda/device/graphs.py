"""CUDA graphs, through ``ctypes``: PyCUDA has none. What steps give a stream is captured once, and launched as one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pullback.runtime.cuda.driver.errors import DeviceError

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.device import Device

THREAD_LOCAL = 1
"""Other threads may do meanwhile what a capture must not."""
SET = 1
"""What is captured next comes after these alone."""


class Graph:
    """Work that was captured."""

    __slots__ = ("_device", "handle")

    def __init__(self, device: Device, handle: int) -> None:
        self._device = device
        self.handle = handle

    def launch(self, stream: int) -> None:
        """Give it to a stream, by its handle. Raises DeviceError."""
        status = self._device.launch_graph(self.handle, stream)
        if status:
            _check(status, "launched")

    def __del__(self) -> None:
        self._device.retire_graph(self.handle)


def captured(device: Device, works: Sequence[Callable[[Any], None]], after: Sequence[Sequence[int]]) -> Graph:
    """The graph of what each of ``works`` gives a stream, after those of the earlier ones that ``after`` names, and no others.
    Nothing of it runs. Raises DeviceError."""
    driver = device.driver
    with device.capturing as stream:
        handle = ctypes.c_void_p(stream.handle)
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        _check(driver.cuStreamBeginCapture_v2(handle, THREAD_LOCAL), "captured")
        try:
            _give(driver, stream, handle, works, after)
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


def _give(
    driver: Any, stream: Any, handle: ctypes.c_void_p, works: Sequence[Callable[[Any], None]], after: Sequence[Sequence[int]]
) -> None:
    """Each work, behind the nodes of what it comes after. At the end the stream is behind what nothing comes after."""
    tips: list[tuple[int, ...]] = []
    last: set[int] = set()
    for work, needs in zip(works, after, strict=True):
        _behind(driver, handle, [node for k in needs for node in tips[k]])
        work(stream)
        last.difference_update(needs)
        last.add(len(tips))
        tips.append(_tips(driver, handle))
    _behind(driver, handle, [node for k in sorted(last) for node in tips[k]])


def _behind(driver: Any, handle: ctypes.c_void_p, nodes: Sequence[int]) -> None:
    found = (ctypes.c_void_p * max(len(nodes), 1))(*nodes)
    _check(driver.cuStreamUpdateCaptureDependencies(handle, found, ctypes.c_size_t(len(nodes)), SET), "captured")


def _tips(driver: Any, handle: ctypes.c_void_p) -> tuple[int, ...]:
    """The nodes that what a stream is given next would come after."""
    status, count, nodes = ctypes.c_int(), ctypes.c_size_t(), ctypes.POINTER(ctypes.c_void_p)()
    number, graph = ctypes.c_ulonglong(), ctypes.c_void_p()
    found = driver.cuStreamGetCaptureInfo_v2(
        handle, ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph), ctypes.byref(nodes), ctypes.byref(count)
    )
    _check(found, "captured")
    return tuple(int(nodes[k] or 0) for k in range(count.value))


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"a CUDA graph could not be {what} (CUDA error {status})")
