"""Emit scans: combine each vector with the combination of all iterations before it.

In a vector loop, lanes are combined with the lanes before them in log2(width) steps at distances 1, 2, 4, ...; then all are
combined with the total of the iterations before. Only that last combination depends on the vector before, and the total takes
in only the last lane, so the dependency chain has one combination per vector. If only the total is used, lanes are combined
after the loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, vector_of
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.scan import Accumulate
from pullback.ir.ops.elementwise.elementwise import Elementwise

START_VALUES = {op.combine: op.first for op in OPS.values() if isinstance(op, Accumulate)}
"""By combiner, a function from a dtype to the start value of its scan."""


class Scan:
    """One scanned value; ``slot`` holds the combination so far."""

    def __init__(self, e: FunctionWriter, combiner: str, dtype: DType, slot: str) -> None:
        self.e, self.dtype, self.slot = e, dtype, slot
        self.op = OPS[combiner]
        self.first = literal(START_VALUES[combiner](dtype), dtype)

    def combined(self, a: str, b: str, width: int) -> str:
        """Emit one combination."""
        assert isinstance(self.op, Elementwise)
        return self.e.emit_elementwise(self.op, self.op.template("llvm", self.dtype.kind), [a, b], self.dtype, width)

    def step(self, values: str) -> Lanes:
        """Return the combinations up to each lane, and update the slot."""
        e, width, name = self.e, self.e.width, element(self.dtype)
        t = vector_of(name, width)
        identity = e.broadcast(Lanes(self.first), name, width)
        if e.mask is not None:
            values = e.let(f"select {vector_of('i1', width)} {e.mask}, {t} {values}, {t} {identity}")
        distance = 1
        while distance < width:
            lanes = ", ".join(f"i32 {k - distance if k >= distance else width}" for k in range(width))
            before = e.let(f"shufflevector {t} {values}, {t} {identity}, <{width} x i32> <{lanes}>")
            values = self.combined(before, values, width)
            distance *= 2
        sofar = e.let(f"load {name}, ptr {self.slot}")
        combined = self.combined(e.broadcast(Lanes(sofar), name, width), values, width)
        total = self.combined(sofar, e.let(f"extractelement {t} {values}, i64 {width - 1}"), 1)
        e.line(f"store {name} {total}, ptr {self.slot}")
        return Lanes(combined, None)


class TotalOnly(Scan):
    """A scanned value of which only the total is used: each lane of each of ``parts`` vectors per iteration has its own
    accumulator."""

    def __init__(self, e: FunctionWriter, combiner: str, dtype: DType, slot: str, parts: int) -> None:
        super().__init__(e, combiner, dtype, slot)
        self.type = vector_of(element(dtype), e.width)
        self.none = e.broadcast(Lanes(self.first, 0), element(dtype), e.width)
        self.parts = [e.slot(self.type) for _ in range(parts)]
        for part in self.parts:
            e.line(f"store {self.type} {self.none}, ptr {part}")

    def step(self, values: str) -> Lanes:
        e, t = self.e, self.type
        if e.mask is not None:
            values = e.let(f"select {vector_of('i1', e.width)} {e.mask}, {t} {values}, {t} {self.none}")
        part = self.parts[e.part % len(self.parts)]
        combined = self.combined(e.let(f"load {t}, ptr {part}"), values, e.width)
        e.line(f"store {t} {combined}, ptr {part}")
        return Lanes(combined, None)

    def end(self) -> None:
        """Combine all lanes into the slot, after the loop."""
        e, name, width = self.e, element(self.dtype), self.e.width
        combined = e.let(f"load {self.type}, ptr {self.parts[0]}")
        for part in self.parts[1:]:
            combined = self.combined(combined, e.let(f"load {self.type}, ptr {part}"), width)
        while width > 2:
            t, half = vector_of(name, width), width // 2
            lanes = [", ".join(f"i32 {k}" for k in range(start, start + half)) for start in (0, half)]
            low, high = (e.let(f"shufflevector {t} {combined}, {t} poison, <{half} x i32> <{each}>") for each in lanes)
            combined, width = self.combined(low, high, half), half
        low, high = (e.let(f"extractelement {vector_of(name, 2)} {combined}, i64 {k}") for k in range(2))
        combined = self.combined(low, high, 1)
        total = self.combined(e.let(f"load {name}, ptr {self.slot}"), combined, 1)
        e.line(f"store {name} {total}, ptr {self.slot}")


class Scans:
    """The scanned values of a loop, of ``width`` lanes each."""

    def __init__(self, e: FunctionWriter, i: Instruction, initial: Sequence[Lanes], width: int) -> None:
        names = i.params.get("scan", ())
        self.e, self.i, self.count = e, i, len(names)
        self.dtypes = [v.type.dtype for v in i.results[: self.count]]
        self.types = [vector_of(element(d), width) for d in self.dtypes]
        self.slots = [e.slot(t) for t in self.types]
        for slot, t, start, dtype in zip(self.slots, self.types, initial, self.dtypes, strict=False):
            e.line(f"store {t} {e.vector(start, dtype, width)}, ptr {slot}")

    def scan_by_parameter(self, parts: int) -> dict[Value, Scan]:
        """Return the scan of each scanned parameter of a vector loop's body, with ``parts`` vectors per iteration."""
        region, scans = self.i.regions[0], list[Scan]()
        read = {v for i in walk(region) for v in i.operands} | set(region.results[self.count :])
        for name, dtype, slot, after in zip(self.i.params.get("scan", ()), self.dtypes, self.slots, region.results, strict=False):
            scans.append(Scan(self.e, name, dtype, slot) if after in read else TotalOnly(self.e, name, dtype, slot, parts))
        self.totals_only = [scan for scan in scans if isinstance(scan, TotalOnly)]
        return dict(zip(region.parameters[1:], scans, strict=True))

    def end(self) -> None:
        """Combine the lanes of values of which only the total is used, after a vector loop."""
        for total in self.totals_only:
            total.end()

    def bind(self) -> None:
        """Bind the parameters of a serial loop's body to the values in the slots."""
        step = None if self.e.width > 1 else 0
        for parameter, text in zip(self.i.regions[0].parameters[1:], self.totals(), strict=True):
            self.e.env[parameter] = Lanes(text, step)

    def store_results(self) -> None:
        """Store the results of a serial loop's body in the slots."""
        for value, slot, t, dtype in zip(self.i.regions[0].results, self.slots, self.types, self.dtypes, strict=False):
            self.e.line(f"store {t} {self.e.vector(self.e.env[value], dtype)}, ptr {slot}")

    def totals(self) -> list[str]:
        """Load the values in the slots."""
        return [self.e.let(f"load {t}, ptr {slot}") for slot, t in zip(self.slots, self.types, strict=True)]
