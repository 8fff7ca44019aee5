"""The number of threads that run parallel loops, and the memory and code of the worker pool (``worker_pool`` generates the
code).

The number is the last argument of ``set_num_threads``; else `PULLBACK_NUM_THREADS`; else `OMP_NUM_THREADS`; else the number of
processors that this process may use at once, by its affinity and its control group's quota. Threads start with the first loop
that is large enough. They end with the process, and a forked child starts its own. Results do not depend on the number.
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
from pathlib import Path
from typing import Any

from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.core.environment import NUM_THREADS
from pullback.ir.core.records import dataclass
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
    """Let loops run on a number of threads in this process from now on. Results do not depend on it.

    The function waits for a parallel loop under way.

    Parameters
    ----------
    number : int
        The number of threads from 1 to 256, the caller's included; 1 starts no thread.

    Raises
    ------
    ValueError
        Below 1 and above 256.

    See Also
    --------
    get_num_threads : The present number.

    Examples
    --------
    >>> before = pb.get_num_threads()
    >>> pb.set_num_threads(1)
    >>> pb.get_num_threads()
    1
    >>> pb.set_num_threads(before)
    """
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"the number of threads is {number!r}: an int is expected")
    _choose(_checked(number.__index__()))


def get_num_threads() -> int:
    """Return the number of threads that loops may run on, the caller's included.

    It is set by `set_num_threads`, else by the environment variable ``PULLBACK_NUM_THREADS``, else by ``OMP_NUM_THREADS``, else
    it is the number of processors that this process may use.

    Returns
    -------
    int
        The number of threads, from 1.

    See Also
    --------
    set_num_threads : Changes it.

    Examples
    --------
    >>> pb.get_num_threads() >= 1
    True
    """
    with _lock:
        count = _chosen.get("number")
        if count is None:
            count = _chosen["number"] = _from_environment()
    return count


def table() -> int:
    """Return the address of the state that generated code passes to run a loop on several threads. Raises ValueError for
    invalid settings."""
    return _worker_pool().address


def functions() -> dict[str, int]:
    """Return the addresses of the functions in that state, which take its address first."""
    return {name: _worker_pool()[name] for name in THREADS}


def compile_in_background() -> None:
    """Start compiling the pool's code in a background thread, if more than one thread is used and the pool does not exist yet."""
    if not _pools and get_num_threads() > 1:
        default_engine().compile_in_background(_source())


@functools.cache
def make_library_sequential() -> None:
    """Run the routines of BLAS and LAPACK called by programs on the calling thread alone."""
    get, put = symbols.blas_thread_functions()
    if get and put:
        _worker_pool().set(blas_set=put)
        _worker_pool().set(blas_get=get)


def started_threads() -> int:
    """Return the number of threads of the pool that have started."""
    return _pools[0]["started"] if _pools else 0


def library_calls() -> int:
    """Return the number of calls of BLAS and LAPACK in progress."""
    return _pools[0]["users"] if _pools else 0


def parallel_loops() -> int:
    """Return the number of loops run in parallel so far."""
    return _pools[0]["dispatched"] if _pools else 0


@dataclass(frozen=True, eq=False)
class WorkerPool:
    """The state of the worker pool. Never freed: threads of an ending process may still read it."""

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

    def resize(self, count: int, patience: float = math.inf) -> None:
        """Use ``count`` threads from now on; running threads are stopped first. Gives up after ``patience`` seconds."""
        end = time.monotonic() + patience
        while not self.acquire(self.address):
            if time.monotonic() > end:
                return
            time.sleep(0.0001)
        if count != self["threads"]:
            self.stop(self.address)
            self.set(threads=count if self["create"] else 1)
        self.release(self.address)

    def reset_after_fork(self) -> None:
        """Reset the state in a forked child, which has none of the threads."""
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
_pools: list[WorkerPool] = []


def _choose(count: int) -> None:
    with _lock:
        _chosen["number"] = count
        if _pools:
            _pools[0].resize(count)


@functools.cache
def _worker_pool() -> WorkerPool:
    """Return the worker pool of this process; creating it starts no thread."""
    count = get_num_threads()
    with _lock:
        if not _pools:
            _pools.append(_build(_chosen.get("number", count)))
            _pools[0].reset_after_fork()
            atexit.register(_end)
            if hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_pools[0].reset_after_fork)
    return _pools[0]


def _end() -> None:
    """Stop the threads before the process unloads the code that they run."""
    _pools[0].resize(1, patience=1.0)


def _source() -> str:
    return source(platform.machine().lower() in ("x86_64", "amd64"))


def _build(threads: int) -> WorkerPool:
    code = default_engine().load(_source(), symbols=[f"pullback_crew_{name}" for name in SERVICES])
    calloc = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)(("calloc", _c_library()))
    block = calloc(1, STATE_BYTES + 64)
    if not block:
        raise MemoryError("no memory for the threads' state")
    address = block + -block % 64
    fields = (ctypes.c_int64 * len(FIELDS)).from_address(address)
    functions = {name: _address(symbol) for name, symbol in _PTHREAD.items()}
    pointer = ctypes.c_void_p
    pool = WorkerPool(
        address,
        fields,
        ctypes.CFUNCTYPE(ctypes.c_int64, pointer)(code["pullback_crew_acquire"]),
        ctypes.CFUNCTYPE(None, pointer)(code["pullback_crew_release"]),
        ctypes.CFUNCTYPE(None, pointer)(code["pullback_crew_stop"]),
    )
    pool.set(threads=1, **{name: code[f"pullback_crew_{name}"] for name in THREADS})
    if all(functions.values()):
        pool.set(**functions, threads=threads, block_all=int(signal.SIG_SETMASK), processor=-1)
    processor_functions = {name: _address(symbol) for name, symbol in _PROCESSORS.items()}
    if all(processor_functions.values()):
        pool.set(**processor_functions)
    return pool


def _c_library() -> ctypes.CDLL:
    return ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)


def _address(symbol: str) -> int:
    """Return the address of a function of the system's thread library; 0 if there is none."""
    try:
        return int(ctypes.cast(getattr(_c_library(), symbol), ctypes.c_void_p).value or 0)
    except AttributeError:
        return 0


def _checked(count: int) -> int:
    if not 1 <= count <= MOST_THREADS:
        raise ValueError(f"set_num_threads: {count} threads, 1 to {MOST_THREADS} are possible")
    return count


def _from_environment() -> int:
    text = NUM_THREADS.read()
    if text:
        return int(text)
    setting = os.environ.get(OTHER_VARIABLE, "").strip()
    numbers = [word.strip() for word in setting.split(",")]
    if all(re.fullmatch("[0-9]*[1-9][0-9]*", word) for word in numbers):
        return min(int(numbers[0]), MOST_THREADS)
    if setting:
        # The variable is not ours; OpenMP also warns and continues.
        text = f"{OTHER_VARIABLE}={setting}: numbers of threads are expected, 1 or more, with a comma between them; it is ignored"
        warnings.warn(text, RuntimeWarning, stacklevel=3)
    return min(_processors(), MOST_THREADS)


def _processors() -> int:
    """Return the number of processors that this process may use at once."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(count, _quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")))))


def _quota(groups: Path, root: Path) -> float:
    """Return the processor time granted by the control groups of this process, in processors; inf if unlimited or unknown."""
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return math.inf
    quotas = [math.inf]
    for line in lines:
        hierarchy, controllers, path = line.split(":", 2)
        if hierarchy == "0":
            quotas += [_share(*_words(folder / "cpu.max")) for folder in _with_parents(root, path)]
        elif "cpu" in controllers.split(","):
            for folder in _with_parents(root / "cpu", path):
                quotas.append(_share(*_words(folder / "cpu.cfs_quota_us"), *_words(folder / "cpu.cfs_period_us")))
    return min(quotas)


def _with_parents(root: Path, path: str) -> list[Path]:
    """Return a control group's folder and its parents."""
    folder = root / path.strip("/")
    return [folder, *(p for p in folder.parents if p.is_relative_to(root))]


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _share(quota: str = "max", period: str = "", *_: str) -> float:
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return math.inf
    return int(quota) / int(period)
