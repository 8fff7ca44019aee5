"""How long plain matrix products take: by SciPy's BLAS, and by kernels of our own.

Both are ways of the kernel that users have, which is told which way to go. They are measured by turns, on as many threads as
loops have, and the least time of each counts: others on the machine can only add to it. Operands are given by rows.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pullback.codegen.cpu.matmul.library_or_generated import owned
from pullback.codegen.cpu.matmul.shape_classes import ALL, CLASSES, LIBRARY, OURS, Shape, has_choice
from pullback.codegen.cpu.schedule import schedule
from pullback.ir.core.types import DTYPES
from pullback.ir.text import parse_function
from pullback.runtime.choices.choices import Choice, Measure, Unmeasurable, choices
from pullback.runtime.choices.matmul import CANDIDATES, default_of, key_of
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import emit_kernel
from pullback.runtime.program.native_addresses import native_address

ROUNDS = 7
LEAST_SECONDS, MOST_REPEATS = 2e-4, 200
MARGIN = 0.07
"""What is faster by less than that does not take the place of what is usual."""
BITS = {OURS: ALL, LIBRARY: 0}
Run = Callable[[], None]


def tuned(dtype: str) -> Iterator[Choice]:
    """Measure each of ``CLASSES`` for a dtype, "f32" or "f64", and have the choices remembered. Processes that have settled
    theirs keep them. Nothing on machines whose products are all the library's."""
    if not has_choice(default_engine().host().target):
        return
    for position, each in enumerate(CLASSES):
        race = Race(dtype, tuple(each.examples))
        yield choices.measure(key_of(dtype, position), race.candidates(), default_of(dtype, position), MARGIN)


@dataclass
class Race:
    """The seconds of both candidates, for one product of each shape together: the less of two measurements that have the same
    one in front."""

    dtype: str
    shapes: tuple[Shape, ...]
    found: dict[str, float] = field(default_factory=dict)

    def candidates(self) -> dict[str, Measure]:
        return {name: lambda name=name: self.seconds(name) for name in CANDIDATES}  # type: ignore[misc]

    def seconds(self, name: str) -> float:
        if not self.found:
            first, second = self.total(), self.total()
            if min(first, key=first.__getitem__) != min(second, key=second.__getitem__):
                raise Unmeasurable("two measurements disagree")
            self.found = {who: min(first[who], second[who]) for who in CANDIDATES}
        return self.found[name]

    def total(self) -> dict[str, float]:
        found = dict.fromkeys(CANDIDATES, 0.0)
        for shape in self.shapes:
            for who, taken in times(self.dtype, shape).items():
                found[who] += taken
        return found


def times(dtype: str, shape: Shape, rounds: int = ROUNDS) -> dict[str, float]:
    """The least seconds that each candidate takes for a product. Raises Unmeasurable where there is no memory for it."""
    rows, terms, columns = shape
    number = DTYPES[dtype].numpy
    try:
        random = np.random.default_rng(0)
        factor = 1 + 2j if number.kind == "c" else 1
        arrays = [(factor * random.random(two)).astype(number) for two in ((rows, terms), (terms, columns))]
        arrays.append(np.zeros((rows, columns), number))
        return _raced({who: bound(dtype, arrays, BITS[who]) for who in CANDIDATES}, rounds)
    except MemoryError as error:
        raise Unmeasurable(str(error)) from error


def _raced(runs: dict[str, Run], rounds: int) -> dict[str, float]:
    for run in runs.values():
        run()
    once = min(_timed(run, 1) for run in runs.values())
    repeats = min(max(1, int(LEAST_SECONDS / max(once, 1e-9))), MOST_REPEATS)
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for who, run in runs.items():
            best[who] = min(best[who], _timed(run, repeats))
    return best


def _timed(run: Run, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def bound(dtype: str, arrays: list[Any], bits: int) -> Run:
    """A product of arrays that are there, done as the bits say."""
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
    place, native = int(block.ctypes.data), ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(address)

    def run(keep: Any = (block, arrays)) -> None:
        if native(place):
            raise MemoryError("a product got no memory")

    return run


@functools.cache
def _kernel(dtype: str) -> tuple[int, tuple[tuple[Any, ...], ...]]:
    """The address of the kernel of plain products, and what it takes."""
    target = default_engine().host().target
    part, end = DTYPES[dtype].part, ",2" if DTYPES[dtype].is_complex else ""
    text = f"""kernel k0(%x: &{part}[s0,s1{end}], %y: &{part}[s1,s2{end}], %out: &{part}[s0,s2{end}]) -> () {{
  gemm %x, %y, %out {{transpose_a=false, transpose_b=false}}
  return
}}"""
    emitted = emit_kernel(schedule(owned(parse_function(text), target, ways=True), target.cpu, target))
    return default_engine().load(emitted.text, symbols=[emitted.name])[emitted.name], emitted.slots
