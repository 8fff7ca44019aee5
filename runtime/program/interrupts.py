"""How Ctrl-C reaches a loop that runs natively.

A loop looks at the clock now and then, and asks here a few times in a tenth of a second. Python runs the handlers of signals in
its main thread alone, and between two of its instructions; so only that thread asks, by resuming a generator: what a handler
raises is raised inside the generator's ``try``, wherever that is.
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
from pullback.runtime.program.host_calls import keep

QUANTUM_MS = 10
FIELDS = ("clock", "quantum", "ask", "ident", "main", "busy")


@functools.cache
def table() -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What a loop needs to ask, as ``FIELDS``: for the life of the process."""
    answers = _answers()
    next(answers)  # into its ``try``: a signal that waits when a loop first asks is raised where the generator stands
    ask = ctypes.CFUNCTYPE(ctypes.c_int64)(answers.__next__)
    ticks = QUANTUM_MS if sys.platform == "win32" else QUANTUM_MS * 1000
    address = int(ctypes.cast(ask, ctypes.c_void_p).value or 0)
    ident = symbols.address("python.PyThread_get_thread_ident")
    main = threading.main_thread().ident or 0
    found = np.array([symbols.address("c.clock"), ticks, address, ident, main, 0], np.int64)
    _kept.extend((ask, answers))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: found.__setitem__(FIELDS.index("main"), threading.get_ident()))
    return found


_kept: list[object] = []


def _answers() -> Iterator[int]:
    """0 to go on; 1 where a handler of a signal raised, which is kept for the caller of the program."""
    answer = 0
    while True:
        try:
            while True:
                yield answer
                answer = 0
        except GeneratorExit:
            return
        except BaseException as error:
            keep(error)
            answer = 1
