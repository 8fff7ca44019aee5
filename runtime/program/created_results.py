"""Results that a program allocates itself, because it computes their extents.

A native function, called with a table of the ordinal of the result and its extents, and with the state of the call, creates the
array. The one here creates it for the call from Python that runs in this thread; the state is 0. The fast call has one of its
own. An exception that NumPy raises, such as MemoryError, ends the program and is raised by the call.
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

_NATIVE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)


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


def _create(table: int, state: int) -> int:
    try:
        results, creations = _calls.running[-1]
        created, array = _created(creations, table)
        results[created.position] = array
        address: int = array.__array_interface__["data"][0]
    except BaseException as error:
        store_exception(error)
        return 0
    return address


def _created(creations: Sequence[Creation], table: int) -> tuple[Creation, Any]:
    """Return the result of a table, and a new array for it."""
    created = creations[ctypes.c_int64.from_address(table).value]
    shape = tuple((ctypes.c_int64 * created.rank).from_address(table + 8))
    return created, np.empty(shape[:-1] if created.has_parts else shape, created.dtype)


def store_failure(creations: Sequence[Creation], table: int) -> None:
    """Store, for the end of the program, the exception of NumPy for a result that could not be created natively."""
    try:
        _created(creations, table)
        raise MemoryError("there is no memory for a result")
    except BaseException as error:
        store_exception(error)


_native = _NATIVE(_create)


@functools.cache
def address() -> int:
    """Return the address of the native function."""
    return int(ctypes.cast(_native, ctypes.c_void_p).value or 0)
