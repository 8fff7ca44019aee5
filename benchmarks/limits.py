"""What this machine can do at most, measured beside the systems: memory at a mix of reads and writes, flops, libmvec's calls."""

import ctypes
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from benchmarks.case import Work
from benchmarks.native import compiled

Call = Callable[[], Any]
VECTOR = 64
BLOCK = 4096
BEYOND_CACHES = 256 * 10**6
FUNCTIONS = ("exp", "log", "erf", "sqrt")


def traffic(work: Work) -> dict[str, Call]:
    """Calls that move BEYOND_CACHES bytes at the work's mix of reads and writes, by streaming stores or plain ones."""
    total = work.reads + work.writes
    if not total:
        return {}
    reads, writes = (int(part / total * BEYOND_CACHES) // VECTOR for part in (work.reads, work.writes))
    library = compiled("limits")
    arrays = [np.zeros(max(1, count) * VECTOR // 8 + 8) for count in (reads, writes)]
    source, target = [a[(-a.ctypes.data % VECTOR) // 8 :] for a in arrays]
    for a in (source, target):
        a[:] = 1.0
    blocks = max(1, (reads + writes) * VECTOR // BLOCK)
    numbers = (ctypes.c_long(blocks), ctypes.c_long(reads), ctypes.c_void_p(source.ctypes.data), ctypes.c_long(writes))

    def call(name: str) -> Call:
        function, out = getattr(library, name), ctypes.c_void_p(target.ctypes.data)
        return lambda: function(*numbers, out) and (source, target)

    return {name: call(name) for name in ("traffic_kept", "traffic_streamed")}


@lru_cache
def rate(name: str) -> float:
    """Flops or elements a second of one of the functions of native/limits.c that are told how many turns to take."""
    function = getattr(compiled("limits"), name)
    function.restype, function.argtypes = ctypes.c_double, [ctypes.c_long]
    turns, best = 1000, 0.0
    for _ in range(12):
        start = time.perf_counter()
        done = function(turns)
        taken = time.perf_counter() - start
        best = max(best, done / taken)
        turns = max(1000, int(0.01 * best / done * turns))
    return best


def shares(work: Work, dtype: str, seconds: Mapping[str, float]) -> dict[str, float]:
    """The time that each part of the work takes alone; that of the traffic was measured."""
    moved = [taken for name, taken in seconds.items() if name.startswith("traffic")]
    parts = {
        "bytes": min(moved, default=0.0) * (work.reads + work.writes) / BEYOND_CACHES,
        "flops": work.flops / rate(f"peak_{dtype}") if work.flops else 0.0,
        "calls": sum(count / rate(f"{name}_{dtype}") for name, count in work.calls.items()),
    }
    return {name: taken for name, taken in parts.items() if taken}


def machine() -> dict[str, float]:
    """GB/s and GFLOP/s of this number of threads, and ns an element of the functions."""
    mixes = {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "triad": (2, 1), "two_by_two": (2, 2)}
    found: dict[str, float] = {}
    for mix, (reads, writes) in mixes.items():
        for name, call in traffic(Work(reads=reads, writes=writes)).items():
            call()
            best = min(timed(call) for _ in range(8))
            found[f"{mix}_{name.removeprefix('traffic_')}_GBs"] = BEYOND_CACHES / best / 1e9
    for dtype in ("float64", "float32"):
        found[f"fma_{dtype}_GFs"] = rate(f"peak_{dtype}") / 1e9
        found.update({f"{name}_{dtype}_ns": 1e9 / rate(f"{name}_{dtype}") for name in FUNCTIONS})
    return found


def timed(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
