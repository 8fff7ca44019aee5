"""Memory of a kernel as LLVM sees it: loads and stores of scalars, lines, gathers and scatters, and references to parts of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import Lanes, mangled, stored, wide
from pullback.codegen.cpu.llvm.streaming import LINE, ask_ahead
from pullback.codegen.cpu.llvm.text import NO_MEMORY
from pullback.codegen.cpu.llvm.vector_patterns import every_other, is_part, load_backwards, load_each, part, store_backwards
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import DType, RefType

MOST_ON_STACK = 1 << 14
"""The bytes that memory of the kernel's own whose size it computes takes at most on the stack."""
ROOM = ("take", "state", "give")
"""What other memory of its own needs: the words of slots ("room", ...)."""


class Accesses(FunctionWriter):
    """Writes a function's loads, stores and prefetches, references to parts of memory, and memory of its own."""

    def load(self, place: Place, index: Sequence[Lanes], guard: Lanes | None) -> Lanes:
        dtype = place.type.dtype
        name, align = stored(dtype), dtype.bytes
        if (row := self.in_row(place, index)) is not None:
            return self.load_line(place, row, guard)
        offset = self.offset(place, index)
        if offset.is_scalar and (guard is None or guard.is_scalar):
            return Lanes(self.loaded(self.scalar_load(place, offset, guard), dtype, 1))
        t, c = wide(name, self.width), wide("i1", self.width)
        mask = self.guarded(guard)
        if offset.step == 1 and not place.strides:
            return self.load_line(place, self.beside(place, place.pointer, offset.text), guard)
        if offset.each and not place.strides and mask is None:
            return Lanes(self.loaded(load_each(self, place, offset, t), dtype, self.width), None)
        if offset.step == -1 and not place.strides:
            turned = load_backwards(self, place, offset, mask, guard is not None)
            return Lanes(self.loaded(turned, dtype, self.width), None)
        if offset.step == 2 and not place.strides and is_part(place, index):
            return Lanes(self.loaded(part(self, place, index, t, mask), dtype, self.width), None)
        if offset.step == 2 and not place.strides and mask is None:
            return Lanes(self.loaded(every_other(self, place, offset, t), dtype, self.width), None)
        pointers = self.pointers(place, Lanes(self.i64(offset), None))
        lanes = mask or self.all_lanes()
        p = wide("ptr", self.width)
        found = self.intrinsic(
            t, f"llvm.masked.gather.{mangled(name, self.width)}.v{self.width}p0",
            [(p, pointers), ("i32", str(align)), (c, lanes), (t, "zeroinitializer")],
        )  # fmt: skip
        return Lanes(self.loaded(found, dtype, self.width), None)

    def load_line(self, place: Place, pointer: str, guard: Lanes | None, walks: bool = False, asks: bool = True) -> Lanes:
        """Load neighbours, the first at an address. ``walks``: of a serial loop, whose accesses are near; ``asks``: ahead, too,
        in a loop that does."""
        dtype, mask = place.type.dtype, self.guarded(guard)
        name, align = stored(dtype), dtype.bytes
        t, c = wide(name, self.width), wide("i1", self.width)
        if guard is not None and mask is not None and not walks:
            pointer = self.near(pointer, place, mask)
        if self.streams is not None and mask is None:
            self.streams.ahead(pointer, dtype, self.part)
        elif self.asks_ahead and asks and not walks:
            ask_ahead(self, pointer)
        if mask is None:
            return Lanes(self.loaded(self.let(f"load {t}, ptr {pointer}, align {align}"), dtype, self.width), None)
        m = mangled(name, self.width)
        found = self.intrinsic(
            t, f"llvm.masked.load.{m}.p0", [("ptr", pointer), ("i32", str(align)), (c, mask), (t, "zeroinitializer")]
        )
        return Lanes(self.loaded(found, dtype, self.width), None)

    def scalar_load(self, place: Place, offset: Lanes, guard: Lanes | None) -> str:
        name = stored(place.type.dtype)
        if guard is None or guard.text == "true":
            return self.let(f"load {name}, ptr {self.pointers(place, offset)}, align {place.type.dtype.bytes}")
        result = self.slot(name)
        self.line(f"store {name} zeroinitializer, ptr {result}")
        self.count += 1
        inside, after = f"read{self.count}", f"past{self.count}"
        self.line(f"br i1 {guard.text}, label %{inside}, label %{after}")
        with self.aside():
            self.label(inside, follows=True)
            self.line(f"store {name} {self.scalar_load(place, offset, None)}, ptr {result}")
            self.line(f"br label %{after}")
        self.label(after, follows=True)
        return self.let(f"load {name}, ptr {result}")

    def store(self, value: Lanes, place: Place, index: Sequence[Lanes], guard: Lanes | None) -> None:
        dtype = place.type.dtype
        name, align = stored(dtype), dtype.bytes
        if 0 in place.type.shape:
            return
        if (row := self.in_row(place, index)) is not None:
            self.store_line(value, place, row, guard)
            return
        offset = self.offset(place, index)
        if offset.is_scalar:
            if not value.is_scalar:
                raise AssertionError("all lanes of a vector loop would write to one place")
            text = self.let(f"zext i1 {value.text} to i8") if dtype.is_bool else value.text
            self.line(f"store {name} {text}, ptr {self.pointers(place, offset)}, align {align}")
            return
        if offset.step == 1 and not place.strides:
            self.store_line(value, place, self.beside(place, place.pointer, offset.text), guard)
            return
        text, mask = self.lanes_stored(value, dtype), self.guarded(guard)
        if self.streams is not None and (mask is not None or offset.step != -1):
            self.streams.flush()
        t, c = wide(name, self.width), wide("i1", self.width)
        if offset.step == -1 and not place.strides:
            store_backwards(self, text, place, offset, mask)
            return
        pointers = self.pointers(place, Lanes(self.i64(offset), None))
        self.intrinsic(
            "void", f"llvm.masked.scatter.{mangled(name, self.width)}.v{self.width}p0",
            [(t, text), (wide("ptr", self.width), pointers), ("i32", str(align)), (c, mask or self.all_lanes())],
        )  # fmt: skip

    def lanes_stored(self, value: Lanes, dtype: DType) -> str:
        """A vector as it is in memory."""
        text = self.vector(value, dtype)
        return self.let(f"zext {wide('i1', self.width)} {text} to {wide('i8', self.width)}") if dtype.is_bool else text

    def store_line(self, value: Lanes, place: Place, pointer: str, guard: Lanes | None) -> None:
        """Store neighbours, the first at an address."""
        dtype, mask = place.type.dtype, self.guarded(guard)
        name, text = stored(dtype), self.lanes_stored(value, dtype)
        t, align = wide(name, self.width), dtype.bytes
        if mask is None:
            if self.streams is None or not self.streams.store(text, t, pointer, place.pointer, dtype):
                self.line(f"store {t} {text}, ptr {pointer}, align {align}")
            return
        if self.streams is not None:
            self.streams.flush()
        given = [(t, text), ("ptr", pointer), ("i32", str(align)), (wide("i1", self.width), mask)]
        self.intrinsic("void", f"llvm.masked.store.{mangled(name, self.width)}.p0", given)

    def prefetch(self, place: Place, index: Sequence[Lanes], into_l1: bool) -> None:
        """Ask for the lines of elements side by side, each once; of others for none. ``into_l1``: into L1, else into L2."""
        offset = self.offset(place, index)
        walks = offset.step is not None and offset.step <= 1 and not place.strides
        if walks or offset.is_scalar:
            self.prefetch_line(self.pointers(place, Lanes(offset.text)), place.type.dtype, into_l1)

    def prefetch_line(self, pointer: str, dtype: DType, into_l1: bool) -> None:
        """Ask for the lines of neighbours, the first at an address, that none before has asked for."""
        stride = dtype.bytes * self.width
        if stride >= LINE or self.part * stride % LINE == 0:
            given = [("ptr", pointer), ("i32", "0"), ("i32", "3" if into_l1 else "2"), ("i32", "1")]
            self.intrinsic("void", "llvm.prefetch.p0", given)

    def subview(self, i: Instruction) -> None:
        place, index = self.places[i.operands[0]], self.env[i.operands[1]]
        rest = [Lanes("0")] * (place.type.rank - 1)
        pointer = self.pointers(place, self.offset(place, [index, *rest]))
        t = i.result.type
        assert isinstance(t, RefType)
        self.places[i.result] = Place(pointer, t, place.extents[1:], place.strides[1:])

    def ref_at(self, i: Instruction) -> None:
        place, t = self.places[i.operands[0]], i.result.type
        assert isinstance(t, RefType)
        index = [self.env[v] for v in i.operands[1:]]
        extents = (self.extent(t.shape[0]), *index[place.type.rank :])
        self.places[i.result] = Place(self.pointers(place, self.offset(place, index[: place.type.rank])), t, extents, ())

    def select_ref(self, i: Instruction) -> None:
        condition = self.env[i.operands[0]].text
        one, other = (self.places[v] for v in i.operands[1:])
        t = i.result.type
        assert isinstance(t, RefType)

        def chosen(kind: str, x: str, y: str) -> str:
            return self.let(f"select i1 {condition}, {kind} {x}, {kind} {y}")

        pairs = zip(self.strides(one), self.strides(other), strict=True)
        strides = tuple(Lanes(chosen("i64", x.text, y.text)) for x, y in pairs)
        self.places[i.result] = Place(chosen("ptr", one.pointer, other.pointer), t, one.extents, strides)

    def strides(self, place: Place) -> Sequence[Lanes]:
        """How many bytes apart neighbours along each axis are."""
        if place.strides:
            return place.strides
        found = [Lanes(str(place.type.dtype.bytes))]
        for extent in reversed(place.extents[1:]):
            found.insert(0, self.multiply(found[0], extent))
        return found

    def row_view(self, i: Instruction) -> None:
        place, t = self.places[i.operands[0]], i.result.type
        assert isinstance(t, RefType)
        turned = bool(i.params["transposed"])
        shift = t.dtype.bytes.bit_length() - 1
        apart = Lanes(self.let(f"ashr exact i64 {place.strides[turned].text}, {shift}"))
        self.places[i.result] = Place(place.pointer, t, (place.extents[turned], apart), ())

    def flat_view(self, i: Instruction) -> None:
        place, t = self.places[i.operands[0]], i.result.type
        assert isinstance(t, RefType)
        self.places[i.result] = Place(place.pointer, t, (self.multiply(*place.extents),), ())

    def select_rows(self, i: Instruction) -> None:
        condition, ref, copy, first, long, *left = i.operands
        place, room, t = self.places[ref], self.places[copy], i.result.type
        assert isinstance(t, RefType)
        size = t.dtype.bytes
        columns = self.env[long]
        apart = place.extents[1].text
        if place.strides:
            apart = self.let(f"ashr i64 {place.strides[0].text}, {size.bit_length() - 1}")
        skipped = self.multiply(self.env[first], columns)
        for column in left:
            skipped = self.add(skipped, self.env[column])
        before = self.multiply(skipped, Lanes(str(-size)))
        start = self.let(f"getelementptr i8, ptr {room.pointer}, i64 {before.text}")
        pointer, lead = (
            self.let(f"select i1 {self.env[condition].text}, {kind} {x}, {kind} {y}")
            for kind, x, y in (("ptr", place.pointer, start), ("i64", apart, columns.text))
        )
        self.places[i.result] = Place(pointer, t, (place.extents[0], Lanes(lead)), ())

    def local(self, i: Instruction) -> None:
        t = i.result.type
        assert isinstance(t, RefType)
        if is_on_stack(i):
            pointer = self.at_entry(f"alloca [{_numbers(t)} x {stored(t.dtype)}], align 64")
        else:
            count = self.multiply(self.env[i.operands[0]], Lanes(str(_numbers(t) // max(int(t.shape[0]), 1) * t.dtype.bytes)))
            pointer = self.heap(count.text)
        self.places[i.result] = Place(pointer, t, tuple(self.extent(e) for e in t.shape), ())

    def heap(self, count: str) -> str:
        """So many bytes, which the function gives back when it ends; where there is no memory, it ends."""
        block = self.at_entry("alloca ptr")
        self.entry.append(f"  store ptr null, ptr {block}")
        self.blocks.append(block)
        if self.depth:
            self.give_back(block)
        wanted = self.let(f"add i64 {count}, {LINE}")
        found = self.let(f"call ptr {self.callee('room', 'take')}(ptr {self.callee('room', 'state')}, i64 {wanted})")
        self.line(f"store ptr {found}, ptr {block}")
        self.count += 1
        none, some = f"none{self.count}", f"some{self.count}"
        self.line(f"br i1 {self.let(f'icmp eq ptr {found}, null')}, label %{none}, label %{some}")
        with self.aside():
            self.label(none, follows=True)
            self.leave(NO_MEMORY)
        self.label(some, follows=True)
        last = self.let(f"add i64 {self.let(f'ptrtoint ptr {found} to i64')}, {LINE - 1}")
        return self.let(f"inttoptr i64 {self.let(f'and i64 {last}, {-LINE}')} to ptr")


def is_on_stack(i: Instruction) -> bool:
    """Whether memory of a function's own is so little that it needs nobody who gives it."""
    t = i.result.type
    assert isinstance(t, RefType)
    return not i.operands or _numbers(t) * t.dtype.bytes <= MOST_ON_STACK


def _numbers(t: RefType) -> int:
    return math.prod(e for e in t.shape if isinstance(e, int))
