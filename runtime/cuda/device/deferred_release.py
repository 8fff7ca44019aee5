"""Keep objects of other libraries alive until a device has finished the work enqueued with them: not all of their streams are
known, and memory that they release would be reused."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, Protocol

WITHOUT_TIME = 2
"""The flag of an event that records no time (CU_EVENT_DISABLE_TIMING)."""


class StreamOwner(Protocol):
    """A device with its index, driver and stream; events are recorded on the stream."""

    @property
    def index(self) -> int: ...
    @property
    def driver(self) -> ctypes.CDLL: ...
    @property
    def stream(self) -> Any: ...


class PendingReleases:
    """The objects kept alive for one device, each with the event after which it is released, and unused events."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[ctypes.c_void_p, Any]] = deque()
        self.idle: list[ctypes.c_void_p] = []


_held: dict[int, PendingReleases] = {}


def keep_until_done(gpu: StreamOwner, owner: Any) -> None:
    """Keep an object alive until the device's stream has finished the work enqueued so far. The context must be current."""
    held = _held.setdefault(gpu.index, PendingReleases())
    release_done(gpu)
    try:
        event = held.idle.pop()
    except IndexError:
        event = ctypes.c_void_p()
        gpu.driver.cuEventCreate(ctypes.byref(event), WITHOUT_TIME)
    gpu.driver.cuEventRecord(event, ctypes.c_void_p(gpu.stream.handle))
    held.waiting.append((event, owner))


def release_done(gpu: StreamOwner) -> None:
    """Release the objects whose events are over."""
    held = _held.get(gpu.index)
    while held is not None and held.waiting and not gpu.driver.cuEventQuery(held.waiting[0][0]):
        try:
            event, _ = held.waiting.popleft()
        except IndexError:  # another thread popped it
            return
        held.idle.append(event)
