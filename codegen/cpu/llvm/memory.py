"""Emit memory accesses of a kernel: scalar and contiguous loads and stores, gathers, scatters, and references to parts of
memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, MemRef
from pullback.codegen.cpu.llvm.lanes import Lanes, element, mangled, stored, vector_of
from pullback.codegen.cpu.llvm.streaming import LINE, emit_prefetch_ahead
from pullback.codegen.cpu.llvm.text import NO_MEMORY, NOTHING
from pullback.codegen.cpu.llvm.vector_patterns import (
    component_of,
    every_other,
    load_interleaved,
    load_repeated,
    load_reversed,
    store_reversed,
)
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import DType, RefType

MOST_ON_STACK = 1 << 14
"""Largest kernel-local buffer, in bytes, that is allocated on the stack if its size is computed by the kernel."""
HEAP_SLOTS = ("take", "state", "give")
"""The words of the slots ("room", word) that a function with heap memory needs."""


class Accesses(FunctionWriter):
    """Emits a function's loads, stores, prefetches, references to parts of memory, and local buffers."""

    def load(self, memref: MemRef, index: Sequence[Lanes], guard: Lanes | None) -> Lanes:
        """Emit a load: contiguous, scalar, reversed, interleaved, or a gather."""
        dtype = memref.type.dtype
        name, align = stored(dtype), dtype.bytes
        if (row := self.row_address(memref, index)) is not None:
            return self.load_contiguous(memref, row, guard)
        offset = self.offset(memref, index)
        if offset.is_scalar and (guard is None or guard.is_scalar):
            return Lanes(self.from_memory(self.scalar_load(memref, offset, guard), dtype, 1))
        t, c = vector_of(name, self.width), vector_of("i1", self.width)
        mask = self.access_mask(guard)
        if offset.step == 1 and not memref.strides:
            return self.load_contiguous(memref, self.contiguous_address(memref, memref.pointer, offset.text), guard)
        if offset.per_lane and not memref.strides and mask is None:
            return Lanes(self.from_memory(load_repeated(self, memref, offset, t), dtype, self.width), None)
        if offset.step == -1 and not memref.strides:
            vector = load_reversed(self, memref, offset, mask, guard is not None)
            return Lanes(self.from_memory(vector, dtype, self.width), None)
        if (component := component_of(memref, index)) is not None:
            vector = load_interleaved(self, memref, index, t, mask, component)
            return Lanes(self.from_memory(vector, dtype, self.width), None)
        if offset.step == 2 and not memref.strides and mask is None:
            return Lanes(self.from_memory(every_other(self, memref, offset, t), dtype, self.width), None)
        pointers = self.pointers(memref, Lanes(self.i64(offset), None))
        lanes = mask or self.all_lanes()
        p = vector_of("ptr", self.width)
        gathered = self.intrinsic(
            t, f"llvm.masked.gather.{mangled(name, self.width)}.v{self.width}p0",
            [(p, pointers), ("i32", str(align)), (c, lanes), (t, "zeroinitializer")],
        )  # fmt: skip
        return Lanes(self.from_memory(gathered, dtype, self.width), None)

    def load_contiguous(
        self, memref: MemRef, pointer: str, guard: Lanes | None, in_serial_loop: bool = False, prefetches: bool = True
    ) -> Lanes:
        """Emit a load of a contiguous vector at an address.

        ``in_serial_loop``: the access is hoisted out of a serial loop and needs no prefetch; ``prefetches``: also prefetch
        ahead if the loop does so.
        """
        dtype, mask = memref.type.dtype, self.access_mask(guard)
        name, align = stored(dtype), dtype.bytes
        t, c = vector_of(name, self.width), vector_of("i1", self.width)
        if guard is not None and mask is not None and not in_serial_loop:
            pointer = self.readable_address(pointer, memref, mask)
        if self.streams is not None and mask is None:
            self.streams.prefetch_ahead(pointer, dtype, self.part)
        elif self.prefetches_ahead and prefetches and not in_serial_loop:
            emit_prefetch_ahead(self, pointer)
        if mask is None:
            loaded = self.let(f"load {t}, ptr {pointer}, align {align}{self.invariance(memref)}")
            return Lanes(self.from_memory(loaded, dtype, self.width), None)
        m = mangled(name, self.width)
        loaded = self.intrinsic(
            t, f"llvm.masked.load.{m}.p0", [("ptr", pointer), ("i32", str(align)), (c, mask), (t, "zeroinitializer")]
        )
        return Lanes(self.from_memory(loaded, dtype, self.width), None)

    def invariance(self, memref: MemRef) -> str:
        """Return what a load says of memory to which nothing writes, so that LLVM moves the load past stores."""
        if not memref.is_constant:
            return ""
        self.declared[NOTHING] = None
        return ", !invariant.load !9001"

    def scalar_load(self, memref: MemRef, offset: Lanes, guard: Lanes | None) -> str:
        """Emit a scalar load; with a guard, behind a branch, and zero if the guard is false."""
        name = stored(memref.type.dtype)
        if guard is None or guard.text == "true":
            address = self.pointers(memref, offset)
            return self.let(f"load {name}, ptr {address}, align {memref.type.dtype.bytes}{self.invariance(memref)}")
        result = self.slot(name)
        self.line(f"store {name} zeroinitializer, ptr {result}")
        self.count += 1
        inside, after = f"read{self.count}", f"past{self.count}"
        self.line(f"br i1 {guard.text}, label %{inside}, label %{after}")
        with self.conditional():
            self.label(inside, follows=True)
            self.line(f"store {name} {self.scalar_load(memref, offset, None)}, ptr {result}")
            self.line(f"br label %{after}")
        self.label(after, follows=True)
        return self.let(f"load {name}, ptr {result}")

    def store(self, value: Lanes, memref: MemRef, index: Sequence[Lanes], guard: Lanes | None) -> None:
        """Emit a store: contiguous, scalar, reversed, or a scatter."""
        dtype = memref.type.dtype
        name, align = stored(dtype), dtype.bytes
        if 0 in memref.type.shape:
            return
        if (row := self.row_address(memref, index)) is not None:
            self.store_contiguous(value, memref, row, guard)
            return
        offset = self.offset(memref, index)
        if offset.is_scalar:
            if not value.is_scalar:
                raise AssertionError("all lanes of a vector loop would write to one place")
            text = self.let(f"zext i1 {value.text} to i8") if dtype.is_bool else value.text
            self.line(f"store {name} {text}, ptr {self.pointers(memref, offset)}, align {align}")
            return
        if offset.step == 1 and not memref.strides:
            self.store_contiguous(value, memref, self.contiguous_address(memref, memref.pointer, offset.text), guard)
            return
        text, mask = self.lanes_stored(value, dtype), self.access_mask(guard)
        if self.streams is not None and (mask is not None or offset.step != -1):
            self.streams.flush()
        t, c = vector_of(name, self.width), vector_of("i1", self.width)
        if offset.step == -1 and not memref.strides:
            store_reversed(self, text, memref, offset, mask)
            return
        pointers = self.pointers(memref, Lanes(self.i64(offset), None))
        self.intrinsic(
            "void", f"llvm.masked.scatter.{mangled(name, self.width)}.v{self.width}p0",
            [(t, text), (vector_of("ptr", self.width), pointers), ("i32", str(align)), (c, mask or self.all_lanes())],
        )  # fmt: skip

    def lanes_stored(self, value: Lanes, dtype: DType) -> str:
        """Convert a vector to its form in memory: booleans become bytes."""
        text = self.vector(value, dtype)
        return self.let(f"zext {vector_of('i1', self.width)} {text} to {vector_of('i8', self.width)}") if dtype.is_bool else text

    def store_contiguous(self, value: Lanes, memref: MemRef, pointer: str, guard: Lanes | None) -> None:
        """Emit a store of a contiguous vector at an address."""
        dtype, mask = memref.type.dtype, self.access_mask(guard)
        name, text = stored(dtype), self.lanes_stored(value, dtype)
        t, align = vector_of(name, self.width), dtype.bytes
        if mask is None:
            if self.streams is None or not self.streams.store(text, t, pointer, memref.pointer, dtype):
                self.line(f"store {t} {text}, ptr {pointer}, align {align}")
            return
        if self.streams is not None:
            self.streams.flush()
        operands = [(t, text), ("ptr", pointer), ("i32", str(align)), (vector_of("i1", self.width), mask)]
        self.intrinsic("void", f"llvm.masked.store.{mangled(name, self.width)}.p0", operands)

    def prefetch(self, memref: MemRef, index: Sequence[Lanes], into_l1: bool) -> None:
        """Emit a prefetch of each line of a contiguous access, or of a scalar one; other accesses are not prefetched."""
        offset = self.offset(memref, index)
        is_contiguous = offset.step is not None and offset.step <= 1 and not memref.strides
        if is_contiguous or offset.is_scalar:
            self.prefetch_contiguous(self.pointers(memref, Lanes(offset.text)), memref.type.dtype, into_l1)

    def prefetch_contiguous(self, pointer: str, dtype: DType, into_l1: bool) -> None:
        """Emit a prefetch of a contiguous vector, unless a vector of the same iteration prefetches the same line."""
        stride = dtype.bytes * self.width
        if stride >= LINE or self.part * stride % LINE == 0:
            operands = [("ptr", pointer), ("i32", "0"), ("i32", "3" if into_l1 else "2"), ("i32", "1")]
            self.intrinsic("void", "llvm.prefetch.p0", operands)

    def subview(self, i: Instruction) -> None:
        """Bind a reference to the subarray at an index of the first axis."""
        memref, index = self.memrefs[i.operands[0]], self.env[i.operands[1]]
        zeros = [Lanes("0")] * (memref.type.rank - 1)
        pointer = self.pointers(memref, self.offset(memref, [index, *zeros]))
        t = i.result.type
        assert isinstance(t, RefType)
        self.memrefs[i.result] = MemRef(pointer, t, memref.extents[1:], memref.strides[1:])

    def ref_at(self, i: Instruction) -> None:
        """Bind a contiguous reference to the memory at an index."""
        memref, t = self.memrefs[i.operands[0]], i.result.type
        assert isinstance(t, RefType)
        index = [self.env[v] for v in i.operands[1:]]
        extents = (self.extent(t.shape[0]), *index[memref.type.rank :])
        self.memrefs[i.result] = MemRef(self.pointers(memref, self.offset(memref, index[: memref.type.rank])), t, extents, ())

    def table_entry(self, i: Instruction) -> None:
        """Bind an entry of a table, which is filled at entry if what it holds is known there."""
        position, *entries = i.operands
        is_ref = isinstance(entries[0].type, RefType)
        texts = [self.memrefs[v].pointer if is_ref else self.env[v].text for v in entries]
        t = "ptr" if is_ref else element(entries[0].type.dtype)
        key = ("table", t, *texts)
        if key not in self.tables:
            table = self.at_entry(f"alloca [{len(texts)} x {t}]")
            known = {line.partition(" = ")[0].strip() for line in self.entry}
            is_known = all(not text.startswith("%") or text in known or text.startswith("%a") for text in texts)
            for k, text in enumerate(texts):
                address, store = f"getelementptr {t}, ptr {table}, i64 {k}", f"store {t} {text}, ptr"
                if is_known:
                    self.entry.append(f"  {store} {self.at_entry(address)}")
                else:
                    self.line(f"{store} {self.let(address)}")
            if is_known:
                self.tables[key] = table
        else:
            table = self.tables[key]
        entry = self.let(f"load {t}, ptr {self.let(f'getelementptr {t}, ptr {table}, i64 {self.env[position].text}')}")
        if is_ref:
            assert isinstance(i.result.type, RefType)
            # The extent only counts as memory that a loop accesses, which decides whether stores bypass the caches.
            extent = (*self.memrefs[entries[0]].extents, Lanes("1"))[0]
            self.memrefs[i.result] = MemRef(entry, i.result.type, (extent,), ())
        else:
            self.env[i.result] = Lanes(entry)

    def select_ref(self, i: Instruction) -> None:
        """Bind a reference to one of two, chosen by a condition."""
        condition = self.env[i.operands[0]].text
        chosen_if, other = (self.memrefs[v] for v in i.operands[1:])
        t = i.result.type
        assert isinstance(t, RefType)

        def chosen(kind: str, x: str, y: str) -> str:
            return self.let(f"select i1 {condition}, {kind} {x}, {kind} {y}")

        pairs = zip(self.strides(chosen_if), self.strides(other), strict=True)
        strides = tuple(Lanes(chosen("i64", x.text, y.text)) for x, y in pairs)
        self.memrefs[i.result] = MemRef(chosen("ptr", chosen_if.pointer, other.pointer), t, chosen_if.extents, strides)

    def strides(self, memref: MemRef) -> Sequence[Lanes]:
        """Return the byte strides of a reference."""
        if memref.strides:
            return memref.strides
        byte_strides = [Lanes(str(memref.type.dtype.bytes))]
        for extent in reversed(memref.extents[1:]):
            byte_strides.insert(0, self.multiply(byte_strides[0], extent))
        return byte_strides

    def row_view(self, i: Instruction) -> None:
        """Bind a reference to a strided matrix, or its transpose, whose rows are contiguous."""
        memref, t = self.memrefs[i.operands[0]], i.result.type
        assert isinstance(t, RefType)
        transposed = bool(i.params["transposed"])
        shift = t.dtype.bytes.bit_length() - 1
        row_stride = Lanes(self.let(f"ashr exact i64 {memref.strides[transposed].text}, {shift}"))
        self.memrefs[i.result] = MemRef(memref.pointer, t, (memref.extents[transposed], row_stride), ())

    def flat_view(self, i: Instruction) -> None:
        """Bind a one-dimensional reference to all elements of a contiguous matrix."""
        memref, t = self.memrefs[i.operands[0]], i.result.type
        assert isinstance(t, RefType)
        self.memrefs[i.result] = MemRef(memref.pointer, t, (self.multiply(*memref.extents),), ())

    def select_rows(self, i: Instruction) -> None:
        """Bind a reference to the rows of a matrix or of their packed copy, chosen by a condition."""
        condition, ref, copy, first, long, *left = i.operands
        memref, packed, t = self.memrefs[ref], self.memrefs[copy], i.result.type
        assert isinstance(t, RefType)
        size = t.dtype.bytes
        columns = self.env[long]
        row_stride = memref.extents[1].text
        if memref.strides:
            row_stride = self.let(f"ashr i64 {memref.strides[0].text}, {size.bit_length() - 1}")
        skipped = self.multiply(self.env[first], columns)
        for column in left:
            skipped = self.add(skipped, self.env[column])
        before = self.multiply(skipped, Lanes(str(-size)))
        start = self.let(f"getelementptr i8, ptr {packed.pointer}, i64 {before.text}")
        pointer, lead = (
            self.let(f"select i1 {self.env[condition].text}, {kind} {x}, {kind} {y}")
            for kind, x, y in (("ptr", memref.pointer, start), ("i64", row_stride, columns.text))
        )
        self.memrefs[i.result] = MemRef(pointer, t, (memref.extents[0], Lanes(lead)), ())

    def local(self, i: Instruction) -> None:
        """Allocate a local buffer, on the stack or on the heap."""
        t = i.result.type
        assert isinstance(t, RefType)
        if is_on_stack(i):
            pointer = self.at_entry(f"alloca [{_static_size(t)} x {stored(t.dtype)}], align 64")
        else:
            count = self.multiply(self.env[i.operands[0]], Lanes(str(_static_size(t) // max(int(t.shape[0]), 1) * t.dtype.bytes)))
            pointer = self.allocate_heap(count.text)
        self.memrefs[i.result] = MemRef(pointer, t, tuple(self.extent(e) for e in t.shape), ())

    def allocate_heap(self, count: str) -> str:
        """Allocate ``count`` bytes, which the function frees at its end; if there is no memory, it returns ``NO_MEMORY``."""
        block = self.at_entry("alloca ptr")
        self.entry.append(f"  store ptr null, ptr {block}")
        self.blocks.append(block)
        if self.depth:
            self.free_block(block)
        wanted = self.let(f"add i64 {count}, {LINE}")
        allocated = self.let(f"call ptr {self.callee('room', 'take')}(ptr {self.callee('room', 'state')}, i64 {wanted})")
        self.line(f"store ptr {allocated}, ptr {block}")
        self.count += 1
        failed, succeeded = f"none{self.count}", f"some{self.count}"
        self.line(f"br i1 {self.let(f'icmp eq ptr {allocated}, null')}, label %{failed}, label %{succeeded}")
        with self.conditional():
            self.label(failed, follows=True)
            self.leave(str(NO_MEMORY))
        self.label(succeeded, follows=True)
        last = self.let(f"add i64 {self.let(f'ptrtoint ptr {allocated} to i64')}, {LINE - 1}")
        return self.let(f"inttoptr i64 {self.let(f'and i64 {last}, {-LINE}')} to ptr")


def is_on_stack(i: Instruction) -> bool:
    """Return whether a local buffer is small enough for the stack."""
    t = i.result.type
    assert isinstance(t, RefType)
    return not i.operands or _static_size(t) * t.dtype.bytes <= MOST_ON_STACK


def _static_size(t: RefType) -> int:
    """Return the product of the static extents of a reference."""
    return math.prod(e for e in t.shape if isinstance(e, int))
