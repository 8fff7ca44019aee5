"""Objects of other libraries that are held until a device is done with what it was given: their streams are not all known, and
memory that they let go of would be used again."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, Protocol

WITHOUT_TIME = 2


class Ordered(Protocol):
    """A device, by its number, with the driver that records events on its stream."""

    @property
    def number(self) -> int: ...
    @property
    def driver(self) -> ctypes.CDLL: ...
    @property
    def stream(self) -> Any: ...


class Lingering:
    """What is held for one device, each with the event after which it is let go, and events that are free."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[ctypes.c_void_p, Any]] = deque()
        self.idle: list[ctypes.c_void_p] = []


_held: dict[int, Lingering] = {}


def linger(place: Ordered, owner: Any) -> None:
    """Hold an object until the device's stream has done what it has been given. The context is current."""
    held = _held.setdefault(place.number, Lingering())
    let_go(place)
    try:
        event = held.idle.pop()
    except IndexError:
        event = ctypes.c_void_p()
        place.driver.cuEventCreate(ctypes.byref(event), WITHOUT_TIME)
    place.driver.cuEventRecord(event, ctypes.c_void_p(place.stream.handle))
    held.waiting.append((event, owner))


def let_go(place: Ordered) -> None:
    """Let go of what the device is done with."""
    held = _held.get(place.number)
    while held is not None and held.waiting and not place.driver.cuEventQuery(held.waiting[0][0]):
        try:
            event, _ = held.waiting.popleft()
        except IndexError:  # another thread took it
            return
        held.idle.append(event)
