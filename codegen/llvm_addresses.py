"""The addresses of a vector loop in emitted LLVM code.

Where an access begins that walks neighbours is computed before the loop. Inside, its address is that and the index, which the
instruction adds for nothing; what only such addresses were computed from is not written there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.codegen.lanes import Lanes
from pullback.ir.ops.elementwise import Elementwise
from pullback.ir.ops.kernel import Load, Store
from pullback.ir.structure import Block, Instruction, Value, walk
from pullback.ir.types import I64

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter


class Addresses:
    """``first``: by access, the address of the element of the first lane of the first iteration, or, ``down``, of the lanes'
    lowest one, for a loop that walks memory in one line. ``body``: what is left of the loop's."""

    def __init__(self, e: Emitter, region: Block) -> None:
        self.e = e
        self.producer = {v: i for i in region.instructions for v in i.results}
        self.first: dict[Instruction, str] = {}
        self.down: dict[Instruction, str] = {}
        env = e.env
        e.env = {**env, region.parameters[0]: Lanes("0", 1)}
        for i in region.instructions:
            if isinstance(i.op, Load | Store):
                self.find(i)
        e.env = env
        self.body = self.without_positions(region)

    def find(self, i: Instruction) -> None:
        ref, index = ref_and_index(i)
        place = self.e.places.get(ref)
        if place is None or place.strides or not index or 0 in place.type.shape or not all(map(self.know, index)):
            return
        offset = self.e.offset(place, [self.e.env[v] for v in index])
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

    def read(self, i: Instruction) -> Sequence[Value]:
        """What an instruction of the body reads."""
        return i.operands[: len(i.operands) - len(ref_and_index(i)[1])] if i in self.first else i.operands


def ref_and_index(access: Instruction) -> tuple[Value, Sequence[Value]]:
    """The reference and the index of a load or store."""
    assert isinstance(access.op, Load | Store)
    position = int(isinstance(access.op, Store))
    return access.operands[position], access.operands[position + 1 + access.op.masked :]


def lowest(e: Emitter, offset: Lanes) -> Lanes:
    """The least offset of all lanes of a vector that is walked from its end."""
    return e.add(Lanes(offset.text), Lanes(str(1 - e.width)))
