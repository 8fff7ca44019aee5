"""Results that a program allocates itself, because it computes their extents.

A native function, called with the ordinal of the result and its extents, creates the array in the call that runs in this
thread. An exception that NumPy raises, such as MemoryError, ends the program and is raised by the call.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pullback.runtime.program.host_calls import store_exception
from pullback.runtime.program.plan import Creation

_NATIVE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)


class _Calls(threading.local):
    """The calls that run in a thread, innermost last: the results of each, and the ones that it creates."""

    def __init__(self) -> None:
        self.running: list[tuple[list[Any], Sequence[Creation]]] = []


_calls = _Calls()


@contextmanager
def creating(results: list[Any], creations: Sequence[Creation]) -> Iterator[None]:
    """Have the program that runs in this context put the arrays that it creates, in this order, into ``results``."""
    _calls.running.append((results, creations))
    try:
        yield
    finally:
        _calls.running.pop()


def _create(table: int) -> int:
    try:
        results, creations = _calls.running[-1]
        created = creations[ctypes.c_int64.from_address(table).value]
        shape = tuple((ctypes.c_int64 * created.rank).from_address(table + 8))
        results[created.position] = array = np.empty(shape[:-1] if created.has_parts else shape, created.dtype)
        address: int = array.__array_interface__["data"][0]
    except BaseException as error:
        store_exception(error)
        return 0
    return address


_native = _NATIVE(_create)


@functools.cache
def address() -> int:
    """Return the address of the native function."""
    return int(ctypes.cast(_native, ctypes.c_void_p).value or 0)
