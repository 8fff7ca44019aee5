"""Scans in emitted LLVM code: what a vector adds to the combination of all iterations before it.

In a vector loop lanes are combined with those before them in log2(width) steps, each with those twice as far away as in the last,
and then all with the total of the iterations before. Only that waits for the vector before, and the total takes in one lane, the
last, so that the chain of combinations is one a vector. Where only the total is read, lanes are combined across after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, wide
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.scan import Accumulate
from pullback.ir.ops.elementwise.elementwise import Elementwise

FIRST = {op.combine: op.first for op in OPS.values() if isinstance(op, Accumulate)}


class Scan:
    """One scanned value: ``slot`` holds the combination so far."""

    def __init__(self, e: FunctionWriter, combiner: str, dtype: DType, slot: str) -> None:
        self.e, self.dtype, self.slot = e, dtype, slot
        self.op = OPS[combiner]
        self.first = literal(FIRST[combiner](dtype), dtype)

    def combined(self, a: str, b: str, width: int) -> str:
        assert isinstance(self.op, Elementwise)
        return self.e.spelled(self.op, self.op.spelling("llvm", self.dtype.kind), [a, b], self.dtype, width)

    def step(self, given: str) -> Lanes:
        """The vector of combinations up to each lane; the slot moves on."""
        e, width, name = self.e, self.e.width, element(self.dtype)
        t = wide(name, width)
        none = e.spread(Lanes(self.first), name, width)
        if e.mask is not None:
            given = e.let(f"select {wide('i1', width)} {e.mask}, {t} {given}, {t} {none}")
        far = 1
        while far < width:
            lanes = ", ".join(f"i32 {k - far if k >= far else width}" for k in range(width))
            before = e.let(f"shufflevector {t} {given}, {t} {none}, <{width} x i32> <{lanes}>")
            given = self.combined(before, given, width)
            far *= 2
        sofar = e.let(f"load {name}, ptr {self.slot}")
        found = self.combined(e.spread(Lanes(sofar), name, width), given, width)
        total = self.combined(sofar, e.let(f"extractelement {t} {given}, i64 {width - 1}"), 1)
        e.line(f"store {name} {total}, ptr {self.slot}")
        return Lanes(found, None)


class Total(Scan):
    """A scanned value of which only the total is read: each lane of each of ``parts`` vectors an iteration has its own."""

    def __init__(self, e: FunctionWriter, combiner: str, dtype: DType, slot: str, parts: int) -> None:
        super().__init__(e, combiner, dtype, slot)
        self.type = wide(element(dtype), e.width)
        self.none = e.spread(Lanes(self.first, 0), element(dtype), e.width)
        self.parts = [e.slot(self.type) for _ in range(parts)]
        for part in self.parts:
            e.line(f"store {self.type} {self.none}, ptr {part}")

    def step(self, given: str) -> Lanes:
        e, t = self.e, self.type
        if e.mask is not None:
            given = e.let(f"select {wide('i1', e.width)} {e.mask}, {t} {given}, {t} {self.none}")
        part = self.parts[e.part % len(self.parts)]
        found = self.combined(e.let(f"load {t}, ptr {part}"), given, e.width)
        e.line(f"store {t} {found}, ptr {part}")
        return Lanes(found, None)

    def end(self) -> None:
        """After the loop: the slot takes in all lanes."""
        e, name, width = self.e, element(self.dtype), self.e.width
        found = e.let(f"load {self.type}, ptr {self.parts[0]}")
        for part in self.parts[1:]:
            found = self.combined(found, e.let(f"load {self.type}, ptr {part}"), width)
        while width > 2:
            t, half = wide(name, width), width // 2
            lanes = [", ".join(f"i32 {k}" for k in range(start, start + half)) for start in (0, half)]
            low, high = (e.let(f"shufflevector {t} {found}, {t} poison, <{half} x i32> <{each}>") for each in lanes)
            found, width = self.combined(low, high, half), half
        low, high = (e.let(f"extractelement {wide(name, 2)} {found}, i64 {k}") for k in range(2))
        found = self.combined(low, high, 1)
        total = self.combined(e.let(f"load {name}, ptr {self.slot}"), found, 1)
        e.line(f"store {name} {total}, ptr {self.slot}")


class Scans:
    """The scanned values of a loop, of ``width`` lanes each."""

    def __init__(self, e: FunctionWriter, i: Instruction, initial: Sequence[Lanes], width: int) -> None:
        names = i.params.get("scan", ())
        self.e, self.i, self.number = e, i, len(names)
        self.dtypes = [v.type.dtype for v in i.results[: self.number]]
        self.types = [wide(element(d), width) for d in self.dtypes]
        self.slots = [e.slot(t) for t in self.types]
        for slot, t, start, dtype in zip(self.slots, self.types, initial, self.dtypes, strict=False):
            e.line(f"store {t} {e.vector(start, dtype, width)}, ptr {slot}")

    def by_parameter(self, parts: int) -> dict[Value, Scan]:
        """For a vector loop of so many vectors an iteration: each scanned parameter of the body."""
        region, made = self.i.regions[0], list[Scan]()
        read = {v for i in walk(region) for v in i.operands} | set(region.results[self.number :])
        for name, dtype, slot, after in zip(self.i.params.get("scan", ()), self.dtypes, self.slots, region.results, strict=False):
            made.append(Scan(self.e, name, dtype, slot) if after in read else Total(self.e, name, dtype, slot, parts))
        self.ends = [scan for scan in made if isinstance(scan, Total)]
        return dict(zip(region.parameters[1:], made, strict=True))

    def end(self) -> None:
        """After a vector loop."""
        for total in self.ends:
            total.end()

    def bind(self) -> None:
        """For a serial loop: the parameters are what the slots hold."""
        step = None if self.e.width > 1 else 0
        for parameter, text in zip(self.i.regions[0].parameters[1:], self.totals(), strict=True):
            self.e.env[parameter] = Lanes(text, step)

    def keep(self) -> None:
        """For a serial loop: the slots get what the body yields."""
        for value, slot, t, dtype in zip(self.i.regions[0].results, self.slots, self.types, self.dtypes, strict=False):
            self.e.line(f"store {t} {self.e.vector(self.e.env[value], dtype)}, ptr {slot}")

    def totals(self) -> list[str]:
        return [self.e.let(f"load {t}, ptr {slot}") for slot, t in zip(self.slots, self.types, strict=True)]
