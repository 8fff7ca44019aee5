"""CUDA graphs, through ``ctypes``: PyCUDA has none. What a function gives a stream is captured once, and launched as one."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pullback.runtime.cuda_errors import DeviceError

if TYPE_CHECKING:
    from pullback.runtime.cuda_device import Device
    from pullback.runtime.cuda_memory import Block

THREAD_LOCAL = 1
"""Other threads may do meanwhile what a capture must not."""


class Graph:
    """Work that was captured. ``arena`` is memory that belongs to it: it runs once at a time, as its stream does."""

    __slots__ = ("_device", "arena", "handle")

    def __init__(self, device: Device, handle: int, arena: Block) -> None:
        self._device = device
        self.handle = handle
        self.arena = arena

    def launch(self, stream: Any) -> None:
        _check(self._device.driver.cuGraphLaunch(ctypes.c_void_p(self.handle), ctypes.c_void_p(stream.handle)), "launched")

    def __del__(self) -> None:
        self._device.retire_graph(self.handle)


def captured(device: Device, work: Callable[[Any], None], arena: Block) -> Graph:
    """The graph of what ``work(stream)`` gives a stream. Nothing of it runs. Raises DeviceError."""
    driver = device.driver
    with device.capturing as stream:
        handle = ctypes.c_void_p(stream.handle)
        graph, ready = ctypes.c_void_p(), ctypes.c_void_p()
        _check(driver.cuStreamBeginCapture_v2(handle, THREAD_LOCAL), "captured")
        try:
            work(stream)
        finally:
            status = driver.cuStreamEndCapture(handle, ctypes.byref(graph))
        _check(status, "captured")
        status = driver.cuGraphInstantiateWithFlags(ctypes.byref(ready), graph, ctypes.c_ulonglong(0))
        driver.cuGraphDestroy(graph)
        _check(status, "made ready")
    return Graph(device, int(ready.value or 0), arena)


def _check(status: int, what: str) -> None:
    if status:
        raise DeviceError(f"a CUDA graph could not be {what} (CUDA error {status})")
