"""Whether the iterations of a loop are independent, and how the loop uses the memory that it writes.

Each reference that a parallel loop writes has a fate: ``OWN`` (iterations write disjoint elements), ``PRIVATE`` (each
iteration writes what it then reads: scratch), or the name of a combiner (iterations add into the same elements).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.kernel.kernel import AtomicAdd, Extent, For, Load, Store, Subview
from pullback.ir.ops.library.routines import Library

OWN, PRIVATE = "own", "private"
COMBINERS = frozenset(op.combine for op in OPS.values() if isinstance(op, Reduce) and not op.gives_position)
IDENTITIES = {op.combine: op.identity for op in OPS.values() if isinstance(op, Reduce)}
Index = tuple[Value, ...]


@dataclass(frozen=True)
class Access:
    """A read or write of a parameter; a matrix product accesses everything below its leading indices."""

    ref: Value
    index: Index
    is_store: bool
    instruction: Instruction


def is_independent(i: Instruction) -> bool:
    """Return whether a loop's iterations may run in any order, or in parallel."""
    if not isinstance(i.op, For) or i.params.get("ordered") or i.params.get("scan"):
        return False
    return "combine" in i.params or len(i.operands) == 1


class Loops:
    """The reads and writes of the loops of a kernel's body."""

    def __init__(self, body: Block) -> None:
        self.body = body
        self.defined = {v: i for i in walk(body) for v in i.results}

    def root_and_index(self, ref: Value) -> tuple[Value, Index]:
        """Return the parameter that a reference is a part of, and the indices that lead to it."""
        definition = self.defined.get(ref)
        if definition is None or not isinstance(definition.op, Subview):
            return ref, ()
        root, index = self.root_and_index(definition.operands[0])
        return root, (*index, definition.operands[1])

    def accesses(self, block: Block) -> Iterator[Access]:
        """Yield the reads and writes of a block, in program order."""
        for i in walk(block):
            match i.op:
                case Load(masked=masked):
                    root, index = self.root_and_index(i.operands[0])
                    yield Access(root, (*index, *i.operands[2 if masked else 1 :]), False, i)
                case Store(masked=masked):
                    root, index = self.root_and_index(i.operands[1])
                    yield Access(root, (*index, *i.operands[3 if masked else 2 :]), True, i)
                case Library(writes=writes, work=work):
                    for position, ref in enumerate(i.operands):
                        if position not in work:
                            root, index = self.root_and_index(ref)
                            yield Access(root, index, position in writes, i)

    def stored(self, block: Block) -> set[Value]:
        return {a.ref for a in self.accesses(block) if a.is_store}

    def fates(self, nest: Sequence[Instruction]) -> dict[Value, str] | None:
        """Return the fate of each reference that a nest of loops writes; None if the nest must not be run in parallel."""
        region = nest[-1].regions[0]
        inside = {v for i in walk(nest[0].regions[0]) for v in (*i.results, *(p for r in i.regions for p in r.parameters))}
        inside.update(nest[0].regions[0].parameters)
        by_ref: dict[Value, list[Access]] = {}
        for access in self.accesses(region):
            by_ref.setdefault(access.ref, []).append(access)
        fates: dict[Value, str] = {}
        for ref, accesses in by_ref.items():
            if not any(a.is_store for a in accesses):
                continue
            fate = self.fate(ref, accesses, nest, inside)
            if fate is None:
                return None
            fates[ref] = fate
        return fates

    def fate(self, ref: Value, accesses: Sequence[Access], nest: Sequence[Instruction], inside: set[Value]) -> str | None:
        """Return the fate of a reference with its accesses in a nest of loops, or None."""
        if all(isinstance(a.instruction.op, AtomicAdd) for a in accesses):
            return OWN
        common = accesses[0].index
        for access in accesses[1:]:
            common = tuple(a if a is b else ref for a, b in zip(common, access.index))  # ref: not one index
        free = list(range(len(common)))
        owned = True
        for loop in nest:
            counter = loop.regions[0].parameters[0]
            axis = next((k for k in free if common[k] is not ref and self.varies_with(common[k], counter, inside)), None)
            owned = owned and axis is not None
            if axis is not None:
                free.remove(axis)
        if owned:
            return OWN
        assert isinstance(ref.type, RefType)
        if ref.type.layout != "c":
            return None
        return self.combiner(accesses) or (PRIVATE if self.is_private(ref, accesses, nest) else None)

    def varies_with(self, value: Value, counter: Value, inside: set[Value]) -> bool:
        """Return whether different values of a counter give different values."""
        if value is counter:
            return True
        definition = self.defined.get(value)
        if definition is None or definition.op.name not in ("add", "sub", "mul"):
            return False
        a, b = definition.operands
        if self.is_invariant(a, inside):
            a, b = b, a
        if not self.is_invariant(b, inside) or not self.varies_with(a, counter, inside):
            return False
        if definition.op.name != "mul":
            return True
        factor = self.defined.get(b)
        if factor is None or not isinstance(factor.op, Extent | Constant):
            return False
        return isinstance(factor.op, Extent) or factor.params["value"] != 0

    def is_invariant(self, value: Value, inside: set[Value]) -> bool:
        definition = self.defined.get(value)
        return (definition is not None and isinstance(definition.op, Extent | Constant)) or value not in inside

    def combiner(self, accesses: Sequence[Access]) -> str | None:
        """Return the combiner by which one read and one write of the same element add to it, or None."""
        if len(accesses) != 2 or accesses[0].is_store or not accesses[1].is_store:
            return None
        load, store = accesses
        if not isinstance(store.instruction.op, Store) or store.instruction.op.masked or load.index != store.index:
            return None
        joined = self.defined.get(store.instruction.operands[0])
        if joined is None or joined.op.name not in COMBINERS or load.instruction.result not in joined.operands:
            return None
        uses = sum(i.operands.count(load.instruction.result) for i in walk(self.body))
        return joined.op.name if uses == 1 else None

    def is_private(self, ref: Value, accesses: Sequence[Access], nest: Sequence[Instruction]) -> bool:
        """Return whether every iteration first writes what it reads, and nothing else reads it."""
        outside = sum(a.ref is ref for a in self.accesses(self.body)) > len(accesses)
        if outside or not accesses[0].is_store or all(a.is_store for a in accesses):
            return False
        own = {i.regions[0].parameters[0] for i in walk(nest[-1].regions[0]) if isinstance(i.op, For)}
        return all(v in own for a in accesses for v in a.index)


def is_shifted(value: Value, index: Value, definitions: Mapping[Value, Instruction], varies: Set[Value]) -> bool:
    """Return whether a value of a loop's body is the index plus a loop-invariant value. ``definitions``: the instructions that
    define the values of the body."""
    while value is not index:
        k = definitions.get(value)
        if k is None or k.op.name not in ("add", "sub"):
            return False
        moving = [v for v in k.operands if v in varies]
        if len(moving) != 1 or (k.op.name == "sub" and k.operands[1] in moving):
            return False
        value = moving[0]
    return True
