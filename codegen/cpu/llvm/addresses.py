"""Hoist the addresses of a vector loop out of it.

The base address of a contiguous access is computed before the loop, and again before a serial loop inside it. In the loop, the
address is the base plus the index, which x86 addressing modes add for free. Instructions that only compute such addresses are
dropped from the body.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.analysis.independence import is_shifted
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, MemRef
from pullback.codegen.cpu.llvm.lanes import Lanes
from pullback.codegen.cpu.llvm.values import Values
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Load, Prefetch, Store


class Addresses:
    """The hoisted addresses of a vector loop.

    ``first``: for each contiguous access, the address of the element of the first lane in the first iteration.
    ``reversed_first``: for each access that runs through memory backwards, the address of the lowest lane in the first
    iteration. ``body``: the loop's body without the dropped instructions. ``step`` is the distance between the indices of
    neighbouring lanes, ``ops`` the types of op whose addresses are hoisted.
    """

    step = 1
    ops: tuple[type, ...] = (Load, Store, Prefetch)

    def __init__(self, e: FunctionWriter, region: Block) -> None:
        self.e, self.index = e, region.parameters[0]
        self.producer = {v: i for i in region.instructions for v in i.results}
        self.first: dict[Instruction, str] = {}
        self.reversed_first: dict[Instruction, str] = {}
        env = e.env
        e.env = {**env, self.index: Lanes("0", self.step)}
        for i in region.instructions:
            if isinstance(i.op, self.ops):
                self.hoist(i)
        e.env = env
        self.body = self.without_hoisted_positions(region)

    def hoist(self, i: Instruction) -> None:
        """Compute the base address of an access if all its indices can be computed before the loop."""
        ref, index = ref_and_index(i)
        memref = self.e.memrefs.get(ref)
        if (
            memref is None
            or memref.strides
            or not index
            or 0 in memref.type.shape
            or not all(map(self.emit_at_first_index, index))
        ):
            return
        self.record(i, memref, index, self.e.offset(memref, [self.e.env[v] for v in index]))

    def record(self, i: Instruction, memref: MemRef, index: Sequence[Value], offset: Lanes) -> None:
        """Record the base address of an access that is contiguous, forwards or backwards."""
        if offset.step == 1:
            self.first[i] = self.e.pointers(memref, Lanes(offset.text))
        elif offset.step == -1:
            self.reversed_first[i] = self.e.pointers(memref, lowest_lane_offset(self.e, offset))

    def emit_at_first_index(self, value: Value) -> bool:
        """Emit a position for the first index; return False if it depends on values computed in the loop."""
        if value in self.e.env:
            return True
        producer = self.producer.get(value)
        is_position = producer is not None and isinstance(producer.op, Elementwise) and producer.result.type.dtype is I64
        if (
            producer is None
            or not is_position
            or producer.op.name not in ("add", "sub", "mul")
            or not all(map(self.emit_at_first_index, producer.operands))
        ):
            return False
        self.e.instruction(producer)
        return True

    def without_hoisted_positions(self, region: Block) -> Block:
        """Return the body without the positions that only accesses with hoisted addresses use."""
        needed = set(region.results)
        for i in region.instructions:
            for inner in i.regions:
                needed.update(inner.results)
                needed.update(v for k in walk(inner) for v in (*k.operands, *(v for r in k.regions for v in r.results)))
        kept = []
        for i in reversed(region.instructions):
            is_position = isinstance(i.op, Elementwise) and i.result.type.dtype is I64
            if not is_position or i.result in needed:
                kept.append(i)
                needed.update(self.used_operands(i))
        return Block(region.parameters, tuple(reversed(kept)), region.results)

    def repeated(self) -> set[Instruction]:
        """Return the accesses whose addresses are the same in each iteration of the enclosing serial loop; their data may be
        in cache."""
        if not self.e.outer_varying:
            return set()
        differ = set(self.e.outer_varying)
        for i in self.producer.values():
            if isinstance(i.op, Elementwise) and i.result.type.dtype is I64 and not differ.isdisjoint(i.operands):
                differ.add(i.result)
        return {i for i in self.first if differ.isdisjoint(i.operands)}

    def at(self, index: str) -> dict[Instruction, tuple[str, str]]:
        """Return, for each access, its base address and the offset from it, in elements, at an index."""
        return {i: (first, index) for i, first in self.first.items()}

    def used_operands(self, i: Instruction) -> Sequence[Value]:
        """Return the operands that an instruction of the remaining body uses."""
        return i.operands[: len(i.operands) - len(ref_and_index(i)[1])] if i in self.first else i.operands


class SerialAddresses(Addresses):
    """The hoisted addresses of a serial loop inside a vector loop.

    An access qualifies if its lanes are contiguous and at most one of its indices varies with the loop. ``inner_extents``: the
    extents of the axes after that index, or None if the address is loop-invariant.
    """

    step = 0
    ops = (Load, Store)

    def __init__(self, e: FunctionWriter, region: Block) -> None:
        self.inner_extents: dict[Instruction, Sequence[Lanes] | None] = {}
        self.varying = varying(region)
        super().__init__(e, region)

    def record(self, i: Instruction, memref: MemRef, index: Sequence[Value], offset: Lanes) -> None:
        """Record the base address of an access; that of a masked load is replaced by a readable one if no lane is active."""
        moving = [k for k, v in enumerate(index) if v in self.varying]
        shifted = all(is_shifted(index[k], self.index, self.producer, self.varying) for k in moving)
        if offset.step != 1 or len(moving) > 1 or not shifted:
            return
        pointer = self.e.pointers(memref, Lanes(offset.text))
        if isinstance(i.op, Load) and i.op.masked:
            guard = i.operands[1]
            if guard in self.varying or guard not in self.e.env:
                return
            mask = self.e.access_mask(self.e.env[guard])
            assert mask is not None
            pointer = self.e.readable_address(pointer, memref, mask)
        self.first[i] = pointer
        self.inner_extents[i] = memref.extents[moving[0] + 1 :] if moving else None

    def at(self, index: str) -> dict[Instruction, tuple[str, str]]:
        addresses = {}
        for i, first in self.first.items():
            moved, behind = Lanes(index), self.inner_extents[i]
            for extent in behind or ():
                moved = self.e.multiply(moved, extent)
            addresses[i] = first, "0" if behind is None else moved.text
        return addresses


def varying(region: Block) -> set[Value]:
    """Return the values of a loop's body that may differ from one iteration to the next."""
    values = set(region.parameters)
    for i in region.instructions:
        if i.regions or not values.isdisjoint(i.operands):
            values.update(i.results)
    return values


def lowest_lane_offset(e: Values, offset: Lanes) -> Lanes:
    """Return the lowest of the lanes' offsets in a vector that runs through memory backwards."""
    return e.add(Lanes(offset.text), Lanes(str(1 - e.width)))
