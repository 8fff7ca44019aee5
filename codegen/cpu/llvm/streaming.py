"""Emit non-temporal stores and early prefetches for loops over more memory than the caches hold.

A vector loop with a light body has a second copy of its main part (``Streams``), which runs if the arrays that the loop
accesses contiguously take at least ``LARGE_BYTES`` in total. Its stores to references that the kernel never reads are
non-temporal, so that the cache lines they fill are not read first; these need whole vectors aligned to a cache line, which is
tested. The function ends with a fence for them. Kernels with their own prefetches get no others.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.cpu.llvm.addresses import Addresses
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, MemRef
from pullback.codegen.cpu.llvm.lanes import stored
from pullback.ir.core.structure import Block, Function, walk
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Load, Store

LARGE_BYTES = 64 << 20
"""More than the last-level cache of most machines, with a margin for the memory that the caller has just used."""
PREFETCH_DISTANCE = 4096
"""The distance in bytes of a prefetch before its use: one page, because hardware prefetching restarts at each page."""
LINE = 64
"""Bytes of a cache line."""
MOST_WEIGHT = 40
"""The greatest weight of a body with a second copy.

Heavier bodies are bound by arithmetic, not by memory. They prefetch at any size, because hardware prefetching ends at each
page and does not start for masked loads at all (Zen 5).
"""

NON_TEMPORAL = ", !nontemporal !{i32 1}"
"""Metadata of a non-temporal store."""


def written_only(kernel: Function) -> frozenset[Value]:
    """Return the references of a kernel that are only stored to."""
    stored: set[Value] = set()
    other: set[Value] = set()
    for i in walk(kernel.body):
        is_store = isinstance(i.op, Store)
        for position, value in enumerate(i.operands):
            (stored if is_store and position == 1 else other).add(value)
    return frozenset(stored - other)


class Streams:
    """The accesses of the second copy of a vector loop. ``test``: an i1 that selects that copy, or None if there is none."""

    def __init__(self, e: FunctionWriter, region: Block, weight: int, unroll: int, addresses: Addresses) -> None:
        self.e = e
        self.test: str | None = None
        self.streamed_bases: set[str] = set()
        self.deferred_stores: dict[str, list[str]] = {}
        self.unroll = max(unroll, LINE // e.target.vector_bytes)
        walked: dict[str, MemRef] = {}
        if e.inlined or e.is_single_chunk or weight > MOST_WEIGHT:
            return
        firsts: list[str] = []
        for i in region.instructions:
            first, lowest = addresses.first.get(i), addresses.reversed_first.get(i)
            if (first or lowest) is None or not isinstance(i.op, Load | Store) or i.op.masked:
                continue
            value, _ = ref_and_index(i)
            if first is None:
                first = e.let(f"getelementptr {stored(value.type.dtype)}, ptr {lowest}, i64 {e.width}")
            walked[e.memrefs[value].pointer] = e.memrefs[value]
            if value in e.written_only and self.fills_lines(value.type.dtype):
                firsts.append(first)
                self.streamed_bases.add(e.memrefs[value].pointer)
        if walked and (self.streamed_bases or not e.has_own_prefetches):
            self.test = self.size_test(list(walked.values()), firsts)

    def fills_lines(self, dtype: DType) -> bool:
        """Return whether vectors of a dtype have non-temporal stores and one iteration fills whole cache lines."""
        size = dtype.bytes * self.e.width
        return not dtype.is_bool and size in (16, 32, 64) and self.unroll * size % LINE == 0

    def size_test(self, memrefs: Sequence[MemRef], firsts: Sequence[str]) -> str:
        """Return an i1: whether the arrays are large and the stores aligned."""
        e = self.e
        total = "0"
        for memref in memrefs:
            size = str(memref.type.dtype.bytes)
            for extent in memref.extents:
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
        if self.streamed_bases:
            self.e.line(f"store i1 true, ptr {self.e.streamed_flag()}")

    def prefetch_ahead(self, pointer: str, dtype: DType, part: int, step: int = 1) -> None:
        """Emit a prefetch for a later iteration, once per cache line. ``step``: -1 if the loop runs through memory backwards."""
        stride = dtype.bytes * self.e.width
        if not self.e.has_own_prefetches and (stride >= LINE or part * stride % LINE == 0):
            emit_prefetch_ahead(self.e, pointer, step)

    def store(self, text: str, t: str, pointer: str, base: str, dtype: DType) -> bool:
        """Emit a non-temporal store; return False if this memory is not stored to that way.

        Stores of less than a cache line are deferred until the line is complete: a processor that gets half a line, then
        another line, writes each half separately.
        """
        if base not in self.streamed_bases:
            self.flush()
            return False
        size = dtype.bytes * self.e.width
        line = self.deferred_stores.setdefault(base, [])
        line.append(f"store {t} {text}, ptr {pointer}, align {size}{NON_TEMPORAL}")
        if len(line) * size >= LINE:
            self.write(self.deferred_stores.pop(base))
        return True

    def flush(self) -> None:
        """Emit the deferred stores."""
        for line in self.deferred_stores.values():
            self.write(line)
        self.deferred_stores.clear()

    def write(self, stores: Sequence[str]) -> None:
        """Emit stores."""
        for store in stores:
            self.e.line(store)


def emit_prefetch_ahead(e: FunctionWriter, pointer: str, step: int = 1) -> None:
    """Emit a prefetch of the line that the loop reads ``PREFETCH_DISTANCE`` bytes later."""
    later = e.let(f"getelementptr i8, ptr {pointer}, i64 {step * PREFETCH_DISTANCE}")
    e.intrinsic("void", "llvm.prefetch.p0", [("ptr", later), ("i32", "0"), ("i32", "3"), ("i32", "1")])
