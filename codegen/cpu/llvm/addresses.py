"""The addresses of a vector loop in emitted LLVM code.

Where an access begins that walks neighbours is computed before the loop, and again before a serial loop inside it. In the loop
its address is that and the index, which the instruction adds for nothing; what only such addresses were computed from is not
written there.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.analysis.independence import is_shifted
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import Lanes
from pullback.codegen.cpu.llvm.values import Values
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Load, Prefetch, Store


class Addresses:
    """``first``: by access, the address of the element of the first lane of the first iteration, or, ``down``, of the lanes'
    lowest one, for a loop that walks memory in one line. ``body``: what is left of the loop's."""

    step = 1
    of: tuple[type, ...] = (Load, Store, Prefetch)

    def __init__(self, e: FunctionWriter, region: Block) -> None:
        self.e, self.index = e, region.parameters[0]
        self.producer = {v: i for i in region.instructions for v in i.results}
        self.first: dict[Instruction, str] = {}
        self.down: dict[Instruction, str] = {}
        env = e.env
        e.env = {**env, self.index: Lanes("0", self.step)}
        for i in region.instructions:
            if isinstance(i.op, self.of):
                self.find(i)
        e.env = env
        self.body = self.without_positions(region)

    def find(self, i: Instruction) -> None:
        ref, index = ref_and_index(i)
        place = self.e.places.get(ref)
        if place is None or place.strides or not index or 0 in place.type.shape or not all(map(self.know, index)):
            return
        self.note(i, place, index, self.e.offset(place, [self.e.env[v] for v in index]))

    def note(self, i: Instruction, place: Place, index: Sequence[Value], offset: Lanes) -> None:
        if offset.step == 1:
            self.first[i] = self.e.pointers(place, Lanes(offset.text))
        elif offset.step == -1:
            self.down[i] = self.e.pointers(place, lowest(self.e, offset))

    def know(self, value: Value) -> bool:
        """Compute a position at the first index from what is known outside; false if it needs more."""
        if value in self.e.env:
            return True
        made = self.producer.get(value)
        is_position = made is not None and isinstance(made.op, Elementwise) and made.result.type.dtype is I64
        if made is None or not is_position or made.op.name not in ("add", "sub", "mul") or not all(map(self.know, made.operands)):
            return False
        self.e.instruction(made)
        return True

    def without_positions(self, region: Block) -> Block:
        """The body without the positions that only accesses with a known address read."""
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
                needed.update(self.read(i))
        return Block(region.parameters, tuple(reversed(kept)), region.results)

    def again(self) -> set[Instruction]:
        """The accesses of memory that each iteration of the loop around goes through again, so that the caches may have it."""
        if not self.e.around:
            return set()
        differ = set(self.e.around)
        for i in self.producer.values():
            if isinstance(i.op, Elementwise) and i.result.type.dtype is I64 and not differ.isdisjoint(i.operands):
                differ.add(i.result)
        return {i for i in self.first if differ.isdisjoint(i.operands)}

    def at(self, index: str) -> dict[Instruction, tuple[str, str]]:
        """By access, where it begins, and how many elements behind that it is at an index."""
        return {i: (first, index) for i, first in self.first.items()}

    def read(self, i: Instruction) -> Sequence[Value]:
        """What an instruction of the body reads."""
        return i.operands[: len(i.operands) - len(ref_and_index(i)[1])] if i in self.first else i.operands


class Walks(Addresses):
    """Those of a serial loop inside a vector loop, for accesses that walk one axis, or none, lanes being neighbours."""

    step = 0
    of = (Load, Store)

    def __init__(self, e: FunctionWriter, region: Block) -> None:
        self.behind: dict[Instruction, Sequence[Lanes] | None] = {}
        self.varies = varying(region)
        super().__init__(e, region)

    def note(self, i: Instruction, place: Place, index: Sequence[Value], offset: Lanes) -> None:
        moving = [k for k, v in enumerate(index) if v in self.varies]
        shifted = all(is_shifted(index[k], self.index, self.producer, self.varies) for k in moving)
        if offset.step != 1 or len(moving) > 1 or not shifted:
            return
        pointer = self.e.pointers(place, Lanes(offset.text))
        if isinstance(i.op, Load) and i.op.masked:
            guard = i.operands[1]
            if guard in self.varies or guard not in self.e.env:
                return
            mask = self.e.guarded(self.e.env[guard])
            assert mask is not None
            pointer = self.e.near(pointer, place, mask)
        self.first[i] = pointer
        self.behind[i] = place.extents[moving[0] + 1 :] if moving else None

    def at(self, index: str) -> dict[Instruction, tuple[str, str]]:
        found = {}
        for i, first in self.first.items():
            moved, behind = Lanes(index), self.behind[i]
            for extent in behind or ():
                moved = self.e.multiply(moved, extent)
            found[i] = first, "0" if behind is None else moved.text
        return found


def varying(region: Block) -> set[Value]:
    """The values of a loop's body that may differ from one iteration to the next."""
    found = set(region.parameters)
    for i in region.instructions:
        if i.regions or not found.isdisjoint(i.operands):
            found.update(i.results)
    return found


def lowest(e: Values, offset: Lanes) -> Lanes:
    """The least offset of all lanes of a vector that is walked from its end."""
    return e.add(Lanes(offset.text), Lanes(str(1 - e.width)))
