"""Loops over more memory than caches hold: what they write goes past the caches, and what they read is asked for early.

A vector loop whose body is light has a second copy of its main part (``Streams``). It runs if the arrays that the loop walks in
one line take ``LARGE_BYTES`` or more together. Its stores to references that the kernel never reads are non-temporal, so that
the memory that they fill is not read first; these need whole vectors at multiples of their size, hence a test of addresses.
The function waits for them once, at its end. A kernel with ``prefetch`` of its own knows what comes, and no loop of it asks.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.llvm.addresses import Addresses
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import stored
from pullback.ir.core.structure import Block, Function, walk
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load, Store

LARGE_BYTES = 64 << 20
"""More than the last-level cache of most machines, with room for what the caller has read and written just before."""
AHEAD = 4096
"""How many bytes before its use memory is asked for: a page, where the hardware's own prefetching begins anew."""
LINE = 64
MOST_WEIGHT = 40
"""Heavier bodies wait for arithmetic, not for memory, and have no second copy; they ask for memory early at any size, since the
hardware's prefetching ends with a page, and does not begin at all for masked loads (Zen 5)."""

NON_TEMPORAL = ", !nontemporal !{i32 1}"


def written_only(kernel: Function) -> frozenset[Value]:
    """The references that a kernel stores elements to and does nothing else with."""
    stored: set[Value] = set()
    other: set[Value] = set()
    for i in walk(kernel.body):
        is_store = isinstance(i.op, Store)
        for position, value in enumerate(i.operands):
            (stored if is_store and position == 1 else other).add(value)
    return frozenset(stored - other)


class Streams:
    """What the second copy of a vector loop does otherwise. ``test``: whether to run it, as an i1; None if there is none."""

    def __init__(self, e: FunctionWriter, region: Block, weight: int, unroll: int, addresses: Addresses) -> None:
        self.e = e
        self.test: str | None = None
        self.past: set[str] = set()
        self.waiting: dict[str, list[str]] = {}
        self.unroll = max(unroll, LINE // e.target.vector_bytes)
        walked: dict[str, Place] = {}
        if e.inlined or weight > MOST_WEIGHT:
            return
        firsts: list[str] = []
        for i in region.instructions:
            first, lowest = addresses.first.get(i), addresses.down.get(i)
            if (first or lowest) is None or not isinstance(i.op, Load | Store) or i.op.masked:
                continue
            value, _ = ref_and_index(i)
            if first is None:
                first = e.let(f"getelementptr {stored(value.type.dtype)}, ptr {lowest}, i64 {e.width}")
            walked[e.places[value].pointer] = e.places[value]
            if value in e.written_only and self.fills(value.type.dtype):
                firsts.append(first)
                self.past.add(e.places[value].pointer)
        if walked and (self.past or not e.kernel_asks):
            self.test = self.pays(list(walked.values()), firsts)

    def fills(self, dtype: DType) -> bool:
        """Whether a vector of such elements is a register of its own, with a non-temporal store, and an iteration fills lines."""
        size = dtype.bytes * self.e.width
        return not dtype.is_bool and size in (16, 32, 64) and self.unroll * size % LINE == 0

    def pays(self, places: Sequence[Place], firsts: Sequence[str]) -> str:
        """Whether the arrays are large and the stores on whole vectors."""
        e = self.e
        total = "0"
        for place in places:
            size = str(place.type.dtype.bytes)
            for extent in place.extents:
                size = e.let(f"mul i64 {size}, {extent.text}")
            total = e.let(f"add i64 {total}, {size}")
        test = e.let(f"icmp sge i64 {total}, {LARGE_BYTES}")
        for first in firsts:
            low = e.let(f"and i64 {e.let(f'ptrtoint ptr {first} to i64')}, {LINE - 1}")
            test = e.let(f"and i1 {test}, {e.let(f'icmp eq i64 {low}, 0')}")
        return test

    def __enter__(self) -> None:
        self.e.streams = self

    def __exit__(self, *_: object) -> None:
        self.e.streams = None
        if self.past:
            self.e.line(f"store i1 true, ptr {self.e.streamed()}")

    def ahead(self, pointer: str, dtype: DType, part: int, step: int = 1) -> None:
        """Ask for the line that a load will need, once for each line. ``step``: -1 if the loop walks down."""
        stride = dtype.bytes * self.e.width
        if not self.e.kernel_asks and (stride >= LINE or part * stride % LINE == 0):
            ask_ahead(self.e, pointer, step)

    def store(self, text: str, t: str, pointer: str, base: str, dtype: DType) -> bool:
        """Store a vector past the caches if its memory is filled so; false if not. Those of less than a line wait for others:
        a processor that is sent half a line, and then another, writes each of them."""
        if base not in self.past:
            self.flush()
            return False
        size = dtype.bytes * self.e.width
        line = self.waiting.setdefault(base, [])
        line.append(f"store {t} {text}, ptr {pointer}, align {size}{NON_TEMPORAL}")
        if len(line) * size >= LINE:
            self.write(self.waiting.pop(base))
        return True

    def flush(self) -> None:
        """Make the stores that wait."""
        for line in self.waiting.values():
            self.write(line)
        self.waiting.clear()

    def write(self, stores: Sequence[str]) -> None:
        for store in stores:
            self.e.line(store)


def ask_ahead(e: FunctionWriter, pointer: str, step: int = 1) -> None:
    """Have the line fetched that a loop reads ``AHEAD`` bytes later."""
    later = e.let(f"getelementptr i8, ptr {pointer}, i64 {step * AHEAD}")
    e.intrinsic("void", "llvm.prefetch.p0", [("ptr", later), ("i32", "0"), ("i32", "3"), ("i32", "1")])
