"""How many threads run parallel loops, and the memory and code that they share (``crew`` has the code).

The number is what ``set_num_threads`` was given last; else `PULLBACK_NUM_THREADS`; else `OMP_NUM_THREADS`; else as many as this
process may use at once, by its affinity and its control group's quota. Threads start with the first loop that is worth them.
They end with the process, and a forked child starts its own. Results do not depend on the number.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import math
import os
import platform
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.core.environment import NUM_THREADS
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.libraries import symbols
from pullback.runtime.process.fork import hold_over_fork
from pullback.runtime.threads.state import DONE, FIELDS, MOST_THREADS, MUTEX, STATE_BYTES, WORK
from pullback.runtime.threads.worker_pool import SERVICES, source

VARIABLE, OTHER_VARIABLE = NUM_THREADS.name, "OMP_NUM_THREADS"

_PTHREAD = {
    "create": "pthread_create", "join": "pthread_join", "lock": "pthread_mutex_lock", "unlock": "pthread_mutex_unlock",
    "wait": "pthread_cond_wait", "signal": "pthread_cond_broadcast", "mask": "pthread_sigmask",
    "yield": "sched_yield",
}  # fmt: skip
_PROCESSORS = {"where": "sched_getcpu", "affinity": "sched_getaffinity", "bind": "sched_setaffinity"}


def set_num_threads(number: int) -> None:
    """Let loops run on ``number`` threads, the caller's included, in this process from now on. Results do not depend on it.

    1 starts no thread. Waits for a parallel loop under way. Raises ValueError below 1 and above 256.
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"the number of threads is {number!r}: an int is expected")
    _choose(_checked(number.__index__()))


def get_num_threads() -> int:
    """How many threads loops may run on, the caller's included: as set by ``set_num_threads``, else by the environment variable
    `PULLBACK_NUM_THREADS`, else `OMP_NUM_THREADS`, else the processors that this process may use."""
    with _lock:
        found = _chosen.get("number")
        if found is None:
            found = _chosen["number"] = _from_environment()
    return found


def table() -> int:
    """The address of what emitted code needs to run a loop on several threads. Raises ValueError for settings without sense."""
    return _crew().address


def functions() -> dict[str, int]:
    """The addresses of the functions in that table, which take its address first."""
    return {name: _crew()[name] for name in THREADS}


def begin() -> None:
    """Have the code that ``table`` is about compiled, if a thread can do that meanwhile."""
    if not _made and get_num_threads() > 1:
        default_engine().begin(_source())


@functools.cache
def tame_library() -> None:
    """Let the routines of BLAS and LAPACK run on the caller's thread alone while a program calls them."""
    get, put = symbols.blas_thread_functions()
    if get and put:
        _crew().set(blas_set=put)
        _crew().set(blas_get=get)


def started() -> int:
    """How many threads wait for work."""
    return _made[0]["started"] if _made else 0


def library_users() -> int:
    """How many calls of BLAS and LAPACK are under way."""
    return _made[0]["users"] if _made else 0


def dispatched() -> int:
    """How many loops were shared out among threads."""
    return _made[0]["dispatched"] if _made else 0


@dataclass(frozen=True, eq=False)
class Crew:
    """The state of the threads. Never freed: threads of a process that ends may still look at it."""

    address: int
    fields: Any
    acquire: Callable[[int], int]
    release: Callable[[int], None]
    stop: Callable[[int], None]

    def __getitem__(self, name: str) -> int:
        return int(self.fields[FIELDS.index(name)])

    def set(self, **values: int) -> None:
        for name, value in values.items():
            self.fields[FIELDS.index(name)] = value

    def resize(self, number: int, patience: float = math.inf) -> None:
        """Use so many threads from now on; those that run end first."""
        end = time.monotonic() + patience
        while not self.acquire(self.address):
            if time.monotonic() > end:
                return
            time.sleep(0.0001)
        if number != self["threads"]:
            self.stop(self.address)
            self.set(threads=number if self["create"] else 1)
        self.release(self.address)

    def renew(self) -> None:
        """As at first, in a child that has none of the threads."""
        if self["users"]:
            symbols.blas_set_threads(self["blas_before"])
        self.set(users=0, guard=0, busy=0, gate=0, started=0, sleeping=0, waiting=0, stop=0, dispatched=0)
        self.make_locks()

    def make_locks(self) -> None:
        if not self["create"]:
            return
        for name, offset in (("mutex", MUTEX), ("cond", WORK), ("cond", DONE)):
            ctypes.memset(self.address + offset, 0, 64)
            make = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)((f"pthread_{name}_init", ctypes.CDLL(None)))
            make(self.address + offset, None)


_lock = threading.Lock()
hold_over_fork(_lock)
_chosen: dict[str, int] = {}
_made: list[Crew] = []


def _choose(number: int) -> None:
    with _lock:
        _chosen["number"] = number
        if _made:
            _made[0].resize(number)


@functools.cache
def _crew() -> Crew:
    """The threads of this process; none has started yet."""
    number = get_num_threads()
    with _lock:
        if not _made:
            _made.append(_build(_chosen.get("number", number)))
            _made[0].renew()
            atexit.register(_end)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_made[0].renew)
    return _made[0]


def _end() -> None:
    """No thread may run code that the process is about to unload."""
    _made[0].resize(1, patience=1.0)


def _source() -> str:
    return source(platform.machine().lower() in ("x86_64", "amd64"))


def _build(number: int) -> Crew:
    code = default_engine().load(_source(), symbols=[f"pullback_crew_{name}" for name in SERVICES])
    calloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(("calloc", _c_library()))
    block = calloc(1, STATE_BYTES + 64)
    if not block:
        raise MemoryError("no memory for the threads' state")
    address = block + -block % 64
    fields = (ctypes.c_int64 * len(FIELDS)).from_address(address)
    functions = {name: _address(symbol) for name, symbol in _PTHREAD.items()}
    pointer = ctypes.c_void_p
    crew = Crew(
        address,
        fields,
        ctypes.CFUNCTYPE(ctypes.c_int64, pointer)(code["pullback_crew_acquire"]),
        ctypes.CFUNCTYPE(None, pointer)(code["pullback_crew_release"]),
        ctypes.CFUNCTYPE(None, pointer)(code["pullback_crew_stop"]),
    )
    crew.set(threads=1, **{name: code[f"pullback_crew_{name}"] for name in THREADS})
    if all(functions.values()):
        crew.set(**functions, threads=number, block_all=int(signal.SIG_SETMASK), processor=-1)
    places = {name: _address(symbol) for name, symbol in _PROCESSORS.items()}
    if all(places.values()):
        crew.set(**places)
    return crew


def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)


def _address(symbol: str) -> int:
    """Of a function of the system's thread library; 0 if there is none."""
    try:
        return int(ctypes.cast(getattr(_c_library(), symbol), ctypes.c_void_p).value or 0)
    except AttributeError:
        return 0


def _checked(number: int) -> int:
    if not 1 <= number <= MOST_THREADS:
        raise ValueError(f"set_num_threads: {number} threads, 1 to {MOST_THREADS} are possible")
    return number


def _from_environment() -> int:
    text = NUM_THREADS.read()
    if text:
        return int(text)
    given = os.environ.get(OTHER_VARIABLE, "").strip()
    numbers = [word.strip() for word in given.split(",")]
    if all(re.fullmatch("[0-9]*[1-9][0-9]*", word) for word in numbers):
        return min(int(numbers[0]), MOST_THREADS)
    if given:
        # It is not ours, and OpenMP says so too, and goes on.
        text = f"{OTHER_VARIABLE}={given}: numbers of threads are expected, 1 or more, with a comma between them; it is ignored"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return min(_processors(), MOST_THREADS)


def _processors() -> int:
    """How many processors this process may use at once."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))))


def _quota(groups: Path, root: Path) -> float:
    """The processors' time that the control groups of this process grant, in processors; inf if they do not say."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return math.inf
    found = [math.inf]
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            found += [_share(*_words(place / "cpu.max")) for place in _upwards(root, path)]
        elif "cpu" in controllers.split(","):
            for place in _upwards(root / "cpu", path):
                found.append(_share(*_words(place / "cpu.cfs_quota_us"), *_words(place / "cpu.cfs_period_us")))
    return min(found)


def _upwards(root: Path, path: str) -> list[Path]:
    """A control group's folder and those above it."""
    place = root / path.strip("/")
    return [place, *(p for p in place.parents if p.is_relative_to(root))]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _share(quota: str = "max", period: str = "", *_: str) -> float:
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return math.inf
    return int(quota) / int(period)
