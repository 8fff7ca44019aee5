"""The limits of this machine, measured along with the systems: memory at a mix of reads and writes, flops, libmvec's calls."""

import ctypes
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.case import Work
from benchmarks.native import compiled

Call = Callable[[], Any]
VECTOR = 64
BEYOND_CACHES = 256 * 10**6
MIXES = ((4, 0), (2, 0), (4, 1), (2, 1), (2, 2), (1, 1), (0, 2))
TURNS = 4
FUNCTIONS = ("exp", "log", "erf", "sqrt")


def mixes(work: Work) -> list[tuple[int, int]]:
    """Return the mixes of arrays read and written at once whose share of writes is closest to the work's."""
    share = work.writes / (work.reads + work.writes)
    nearest = min(abs(writes / (reads + writes) - share) for reads, writes in MIXES)
    return [mix for mix in MIXES if abs(mix[1] / sum(mix) - share) == nearest]


def traffic(work: Work) -> dict[str, Call]:
    """Calls that move BEYOND_CACHES bytes at the work's mix of reads and writes, by streaming stores or plain ones."""
    if not work.reads + work.writes:
        return {}
    library = compiled("limits")
    room = np.ones(BEYOND_CACHES // 8 + 8)
    start = room.ctypes.data + -room.ctypes.data % VECTOR

    def call(name: str, reads: int, writes: int) -> Call:
        function, count = getattr(library, f"{name}_{reads}_{writes}"), BEYOND_CACHES // VECTOR // (reads + writes)
        function.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        return lambda: function(count, start, start + reads * count * VECTOR) and room

    return {f"traffic {name} {mix}": call(name, *mix) for mix in mixes(work) for name in ("streamed", "kept")}


_rates: dict[str, float] = {}


def rate(name: str, *, again: bool = False) -> float:
    """Return the highest rate, in flops or elements a second, measured in this process of one of the functions of native/limits.c
    that take an iteration count; with `again` it is measured once more first."""
    if again or name not in _rates:
        _rates[name] = max(_rates.get(name, 0.0), measured_rate(name))
    return _rates[name]


def measured_rate(name: str) -> float:
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


def shares(work: Work, dtype: str, moved: Mapping[str, float], quickest: float) -> dict[str, float]:
    """Return the time that each part of the work takes alone; `moved` has the measured times of the `traffic`.

    If a share is above the time of the `quickest` system, something else ran during its measurement, such as the idle threads of
    a library, unless the arrays stay in a cache: it is measured again, and the least counts.
    """
    moved = dict(moved)
    for turn in range(TURNS):
        again = turn > 0
        if again:
            time.sleep(0.1)
            moved.update({name: min(moved[name], timed(call)) for name, call in traffic(work).items() for _ in range(3)})
        parts = {
            "bytes": min(moved.values(), default=0.0) * (work.reads + work.writes) / BEYOND_CACHES,
            "flops": work.flops / rate(f"peak_{dtype}", again=again) if work.flops else 0.0,
            "calls": sum(count / rate(f"{name}_{dtype}", again=again) for name, count in work.calls.items()),
        }
        if max(parts.values()) <= quickest:
            break
    return {name: taken for name, taken in parts.items() if taken}


def machine() -> dict[str, float]:
    """GB/s and GFLOP/s of this number of threads, and ns an element of the functions."""
    result: dict[str, float] = {}
    for mix, (reads, writes) in {"read": (1, 0), "write": (0, 1), "copy": (1, 1), "triad": (2, 1)}.items():
        for name, call in traffic(Work(reads=reads, writes=writes)).items():
            call()
            kind, best = name.split()[1], min(timed(call) for _ in range(8))
            result[f"{mix} {kind} GB/s"] = max(BEYOND_CACHES / best / 1e9, result.get(f"{mix} {kind} GB/s", 0.0))
    for dtype in ("float64", "float32"):
        result[f"fma {dtype} GF/s"] = rate(f"peak_{dtype}") / 1e9
        result.update({f"{name} {dtype} ns": 1e9 / rate(f"{name}_{dtype}") for name in FUNCTIONS})
    return result


def timed(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
