"""Measure plain matrix products: by SciPy's BLAS, and by generated kernels.

Both are paths of the kernel that users run, selected by a bit mask. They are measured alternately, on as many threads as loops
use, and the shortest time of each counts: other load on the machine can only add to it. Operands are row-major.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import field
from typing import Any

import numpy as np

from pullback.codegen.cpu.matmul.library_or_generated import owned
from pullback.codegen.cpu.matmul.shape_classes import ALL, CLASSES, LIBRARY, OURS, Shape, has_choice
from pullback.codegen.cpu.schedule import schedule
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES
from pullback.ir.text import parse_function
from pullback.runtime.choices.choices import Choice, Measure, Unmeasurable, choices
from pullback.runtime.choices.matmul import CANDIDATES, default_of, key_of
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import emit_kernel
from pullback.runtime.program.native_addresses import native_address

ROUNDS = 7
"""The number of rounds, in each of which every candidate is timed."""
LEAST_SECONDS, MOST_REPEATS = 2e-4, 200
"""The least time of a measurement in seconds, to which a product is repeated, and the largest number of repetitions."""
MARGIN = 0.07
"""The fraction of time that a candidate must save to replace the default."""
BITS = {OURS: ALL, LIBRARY: 0}
"""The bit mask of shape classes that selects a candidate for all."""
Run = Callable[[], None]


def tuned(dtype: str) -> Iterator[Choice]:
    """Measure each of ``CLASSES`` for a dtype, such as "f32", store the choices and yield them. Processes that have settled
    theirs keep them. Yields nothing on machines where the library does all products."""
    if not has_choice(default_engine().host().target):
        return
    for position, each in enumerate(CLASSES):
        race = Comparison(dtype, tuple(each.examples))
        yield choices.measure(key_of(dtype, position), race.candidates(), default_of(dtype, position), MARGIN)


@dataclass
class Comparison:
    """The seconds of both candidates, summed over one product of each shape: the shorter of two measurements, which must agree
    on the faster one."""

    dtype: str
    shapes: tuple[Shape, ...]
    best: dict[str, float] = field(default_factory=dict)

    def candidates(self) -> dict[str, Measure]:
        return {name: lambda name=name: self.seconds(name) for name in CANDIDATES}  # type: ignore[misc]

    def seconds(self, name: str) -> float:
        if not self.best:
            first, second = self.total(), self.total()
            if min(first, key=first.__getitem__) != min(second, key=second.__getitem__):
                raise Unmeasurable("two measurements disagree")
            self.best = {candidate: min(first[candidate], second[candidate]) for candidate in CANDIDATES}
        return self.best[name]

    def total(self) -> dict[str, float]:
        totals = dict.fromkeys(CANDIDATES, 0.0)
        for shape in self.shapes:
            for candidate, taken in times(self.dtype, shape).items():
                totals[candidate] += taken
        return totals


def times(dtype: str, shape: Shape, rounds: int = ROUNDS) -> dict[str, float]:
    """Return the shortest time in seconds of each candidate for a product. Raises Unmeasurable if there is no memory for it."""
    rows, depth, columns = shape
    scalar_type = DTYPES[dtype].numpy
    try:
        random = np.random.default_rng(0)
        factor = 1 + 2j if scalar_type.kind == "c" else 1
        arrays = [(factor * random.random(extents)).astype(scalar_type) for extents in ((rows, depth), (depth, columns))]
        arrays.append(np.zeros((rows, columns), scalar_type))
        return _raced({candidate: product_call(dtype, arrays, BITS[candidate]) for candidate in CANDIDATES}, rounds)
    except MemoryError as error:
        raise Unmeasurable(str(error)) from error


def _raced(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    for run in runs.values():
        run()
    once = min(_timed(run, 1) for run in runs.values())
    repeats = min(max(1, int(LEAST_SECONDS / max(once, 1e-9))), MOST_REPEATS)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for candidate, run in runs.items():
            best[candidate] = min(best[candidate], _timed(run, repeats))
    return best


def _timed(run: Run, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def product_call(dtype: str, arrays: list[Any], bits: int) -> Run:
    """Return a function that runs a product of these arrays as the bit mask selects."""
    address, slots = _kernel(dtype)
    sizes = (*arrays[0].shape, arrays[1].shape[1])

    def value(slot: tuple[Any, ...]) -> int:
        match slot:
            case ("pointer", int(k)):
                return int(arrays[k].ctypes.data)
            case ("size", int(k)):
                return sizes[k]
            case ("choice", *_):
                return bits
        return native_address(slot)

    block = np.array([value(slot) for slot in slots], np.int64)
    slots_address, native = int(block.ctypes.data), ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)

    def run(keep: Any = (block, arrays)) -> None:
        if native(slots_address):
            raise MemoryError("a product got no memory")

    return run


@functools.cache
def _kernel(dtype: str) -> tuple[int, tuple[tuple[Any, ...], ...]]:
    """Return the address of the kernel of plain products, and its argument slots."""
    target = default_engine().host().target
    part, end = DTYPES[dtype].part, ",2" if DTYPES[dtype].is_complex else ""
    text = f"""kernel k0(%x: &{part}[s0,s1{end}], %y: &{part}[s1,s2{end}], %out: &{part}[s0,s2{end}]) -> () {{
  gemm %x, %y, %out {{transpose_a=false, transpose_b=false}}
  return
}}"""
    emitted = emit_kernel(schedule(owned(parse_function(text), target, both=True), target.cpu, target))
    return default_engine().load(emitted.text, symbols=[emitted.name])[emitted.name], emitted.slots
