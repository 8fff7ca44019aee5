"""Deliver Ctrl-C to a loop that runs natively.

A loop reads the clock at intervals, and polls the function here a few times in a tenth of a second. Python runs signal
handlers only in its main thread, between two of its instructions; so only that thread polls, by resuming a generator: an
exception raised by a handler is raised inside the generator's ``try``.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterator

import numpy as np

from pullback.runtime.libraries import symbols
from pullback.runtime.program.host_calls import store_exception

QUANTUM_MS = 10
"""The time between two polls, in milliseconds."""
FIELDS = ("clock", "quantum", "ask", "ident", "main", "busy", "gettime", "clock_id")
"""The fields of the table that a loop polls with. ``gettime``: the C library's clock_gettime, or 0; ``clock_id``: its first
argument."""
COARSE = 6
"""Linux's CLOCK_MONOTONIC_COARSE, which is read in ten nanoseconds, where ``clock`` takes half a microsecond."""


@functools.cache
def table() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the table that a loop polls with, as ``FIELDS``; it lives as long as the process."""
    answers = _answers()
    next(answers)  # enters its ``try``, so that a signal pending at the first poll is raised inside it
    ask = ctypes.CFUNCTYPE(ctypes.c_int64)(answers.__next__)
    ticks = QUANTUM_MS if sys.platform == "win32" else QUANTUM_MS * 1000
    address = int(ctypes.cast(ask, ctypes.c_void_p).value or 0)
    ident = symbols.address("python.PyThread_get_thread_ident")
    main = threading.main_thread().ident or 0
    gettime = symbols.address("c.clock_gettime") if sys.platform == "linux" else 0
    fields = np.array([symbols.address("c.clock"), ticks, address, ident, main, 0, gettime, COARSE], np.int64)
    _kept.extend((ask, answers))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: fields.__setitem__(FIELDS.index("main"), threading.get_ident()))
    return fields


_kept: list[object] = []


def _answers() -> Iterator[int]:
    """Yield 0 to continue, or 1 if a signal handler raised; the exception is stored for the caller of the program."""
    answer = 0
    while True:
        try:
            while True:
                yield answer
                answer = 0
        except GeneratorExit:
            return
        except BaseException as error:
            store_exception(error)
            answer = 1
