"""The lowering of control flow of a fused function to loops and branches of its program.

A carried scalar has one buffer, which the end of the body overwrites. A carried array has one buffer if the body updates it in
place (as ``a[i] = v`` does), else two that alternate. Arrays that a body yields in exchanged positions (``return b, a``)
exchange their buffers. A row of a sequence that a body yields is computed in the sequence's
buffer, and rows that it takes are read in place. The buffer of a carried array that is last used by the loop is reused by the
loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.lower.block import BlockLowering
from pullback.codegen.lower.copies import EITHER, FOR_EACH, OF_BRANCH, TWICE
from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.types import I64, ArrayType, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.program import Alloc, BindExtent, branch, loop, loop_while


@dataclass(frozen=True, eq=False)
class CarriedReferences:
    """The references that are parameters of a loop's body, their initial buffers, and the references that the body yields for
    the next iteration."""

    parameters: list[Value]
    first: list[Value]
    yields: list[Value]


def lower_scan(outer: BlockLowering, b: Builder, i: Instruction) -> None:
    (region,) = i.regions
    length, carried, sliced = tuple(i.params["length"]), i.params["carried"], i.params["sliced"]
    start = 0 if length else 1
    states = i.operands[start : start + carried]
    sequences = [outer.sequence(b, v) for v in i.operands[start + carried : start + carried + sliced]]
    count = [] if length else [outer.plain(b, i.operands[0])]
    index = b.at(b.loc, "i").alloc(dtype=I64, shape=())
    homes = [_home(outer, b, i, k) for k in range(start, start + carried)]
    captures = _captures(outer, b, i.operands[start + carried + sliced :])
    outputs = []
    for value in i.results[carried:]:
        at = b.at(b.loc, value.name)
        t = value.type
        outputs.append(outer.buffer(b, value) if length else at.stack(*count, dtype=t.dtype, shape=t.shape))
    refs, references = _references(region.parameters[1 : 1 + carried], homes)
    rows = region.parameters[1 + carried : 1 + carried + sliced]
    memory = dict(zip(region.parameters, (index, *refs, *(index for _ in rows), *captures), strict=True))
    fixed = frozenset(v for v in region.parameters if v not in region.parameters[1 : 1 + carried])
    inner = outer.inside(region, memory, fixed)
    for value, sequence in zip(rows, sequences, strict=True):
        inner.memory[value] = inner.b.at(i.loc, value.name).row(sequence, index)
    inner.run()
    body = _Body(outer, inner, b, i)
    body.rows(region.results[carried:], [("row", (sequence, index)) for sequence in outputs])
    body.prepare_next(refs, references, region.results[:carried])
    block = Block(tuple(references.parameters), tuple(inner.b.instructions), tuple(references.yields))
    params = {"length": length, "reverse": i.params["reverse"]}
    last = b.emit(loop, (index, *count, *references.first), params, (block,))
    body.restore(states, homes, refs, references, last)
    for value, ref in zip(i.results[carried:], outputs, strict=True):
        outer.memory[value] = ref
    b.free(index)


def lower_while(outer: BlockLowering, b: Builder, i: Instruction) -> None:
    condition, region = i.regions
    carried = i.params["carried"]
    states = i.operands[:carried]
    trips = outer.buffer(b, i.results[carried])
    homes = [_home(outer, b, i, k) for k in range(carried)]
    captures = _captures(outer, b, i.operands[carried:])
    stacks = []
    for value in i.results[carried + 1 :]:
        stacks.append(b.at(b.loc, value.name).stack(dtype=value.type.dtype, shape=value.type.shape))
    refs, references = _references(region.parameters[1 : 1 + carried], homes)
    memory = dict(zip(region.parameters, (trips, *refs, *captures), strict=True))
    inner = outer.inside(region, memory, frozenset((region.parameters[0], *region.parameters[1 + carried :])))
    inner.run()
    body = _Body(outer, inner, b, i)
    body.rows(region.results[carried:], [("push", (stack,)) for stack in stacks])
    body.prepare_next(refs, references, region.results[:carried])
    block = Block(tuple(references.parameters), tuple(inner.b.instructions), tuple(references.yields))
    seen = {ref: Value(ref.type, ref.name) for ref in references.parameters}
    memory = dict(zip(condition.parameters, (trips, *(seen.get(r, r) for r in refs), *captures), strict=True))
    test = outer.inside(condition, memory, frozenset(condition.parameters))
    test.run()
    goes_on = test.dense(test.b, condition.results[0])
    test_block = Block(tuple(seen.values()), tuple(test.b.instructions), (goes_on,))
    last = b.emit(loop_while, (trips, *references.first), {}, (test_block, block))
    body.restore(states, homes, refs, references, last)
    for value, ref in zip(i.results[carried:], (trips, *stacks), strict=True):
        outer.memory[value] = ref


def lower_switch(outer: BlockLowering, b: Builder, i: Instruction) -> None:
    index = outer.plain(b, i.operands[0])
    captures = i.operands[1:]
    memory = [outer.memory[v] for v in captures]
    dying = [outer.is_last_use(v, [w for w in i.operands if w is not v]) and captures.count(v) == 1 for v in captures]
    branches = []
    for region in i.regions:
        fixed = frozenset(v for v, dies in zip(region.parameters, dying, strict=True) if not dies)
        inner = outer.inside(region, dict(zip(region.parameters, memory, strict=True)), fixed)
        inner.run()
        branches.append(_Body(outer, inner, b, i))
    lent: list[int] = []
    targets: list[Value | None] = []
    for k, value in enumerate(i.results):
        kept = _kept_in(i, branches, k, [p for p, dies in enumerate(dying) if dies and p not in lent], memory)
        if kept is None:
            outer.memory[value] = outer.buffer(b, value)
            targets.append(outer.memory[value])
            continue
        lent.append(kept)
        outer.memory[value] = outer.memory[captures[kept]]
        outer.share_buffer(value, captures[kept])
        targets.append(None)
    blocks = []
    for region, body in zip(i.regions, branches, strict=True):
        wanted = [(v, ref) for v, ref in zip(region.results, targets, strict=True) if ref is not None]
        body.rows([v for v, _ in wanted], [("view", (ref,)) for _, ref in wanted])
        blocks.append(Block((), tuple(body.inner.b.instructions), ()))
    b.emit(branch, (index,), {}, blocks)


def _kept_in(
    i: Instruction, branches: Sequence[_Body], position: int, captures: Sequence[int], memory: Sequence[Value]
) -> int | None:
    """Return the capture in whose buffer every branch leaves a result, or None."""
    wholes = {body.whole(body.inner.memory[region.results[position]]) for region, body in zip(i.regions, branches, strict=True)}
    for k in captures:
        ref = memory[k]
        if isinstance(ref.type, RefType) and ref.type == _as_ref(i.results[position]) and wholes == {branches[0].whole(ref)}:
            return k
    return None


def _as_ref(value: Value) -> RefType:
    return RefType(value.type.dtype, value.type.shape)


def _home(outer: BlockLowering, b: Builder, i: Instruction, position: int) -> Value:
    """Return the initial buffer of a carried value: its operand's own if that is not used later, else a new one."""
    value = i.operands[position]
    others = [v for k, v in enumerate(i.operands) if k != position]
    if outer.is_last_use(value, others):
        return outer.memory[value]
    ref = outer.buffer(b, value)
    b.copy(outer.plain(b, value), ref)
    outer.log_copy(b, value)
    return ref


def _captures(outer: BlockLowering, b: Builder, values: Sequence[Value]) -> list[Value]:
    """Return the buffers of captures, row-major, since every iteration reads them; scalars and stacks unchanged."""
    return [outer.plain(b, v) if isinstance(v.type, ArrayType) else outer.memory[v] for v in values]


def _references(parameters: Sequence[Value], homes: Sequence[Value]) -> tuple[list[Value], CarriedReferences]:
    """Return the references of the carried values in the body: scalars by their buffers, arrays by parameters of the body."""
    refs = [Value(home.type, v.name) if v.type.shape else home for v, home in zip(parameters, homes, strict=True)]
    parameters_of_body = [ref for ref in refs if ref not in homes]
    return refs, CarriedReferences(
        parameters_of_body, [home for ref, home in zip(refs, homes, strict=True) if ref is not home], []
    )


class _Body:
    """The end of a lowered region: moves its results to their buffers."""

    def __init__(self, outer: BlockLowering, inner: BlockLowering, b: Builder, i: Instruction) -> None:
        self.outer = outer
        self.inner = inner
        self.b = b
        self.instruction = i
        self.end = inner.b.at(i.loc)
        self.spares: dict[Value, Value] = {}
        self.rotating: set[Value] = set()
        self.claimed: set[Value] = set()

    def whole(self, ref: Value) -> Value:
        """Return the buffer that a reference shows a part of."""
        return self.inner.whole.get(ref, ref)

    def claim(self, ref: Value) -> int | None:
        """Return the position of the allocation of the buffer behind a reference, if the body allocates it and it is not
        claimed yet; claim it."""
        buffer = self.whole(ref)
        if buffer in self.claimed:
            return None
        for position, i in enumerate(self.inner.b.instructions):
            if isinstance(i.op, Alloc) and i.result is buffer:
                self.claimed.add(buffer)
                return position
        return None

    def holds_extent(self, buffer: Value) -> bool:
        """Return whether the extents of a buffer are defined by value in the body, so not known outside."""
        inside = {i.params["extent"][0] for i in self.inner.b.instructions if isinstance(i.op, BindExtent)}
        return any(e in inside for e in buffer.type.shape)

    def rows(self, values: Sequence[Value], places: Sequence[tuple[str, tuple[Value, ...]]]) -> None:
        """Store values in memory that an op returns: a row of a sequence, a new entry of a stack, a buffer outside the region."""
        for value, (name, operands) in zip(values, places, strict=True):
            source = self.inner.plain(self.end, value)
            at = self.claim(source) if value.type.shape else None
            builder = Builder(self.end.loc, hint=value.name)
            target = operands[0] if name == "view" else getattr(builder, name)(*operands)
            if at is None:
                self.inner.b.instructions.extend(builder.instructions)
                self.end.copy(source, target)
                self.inner.copies.add(self.end.instructions, value, OF_BRANCH if name == "view" else FOR_EACH)
                continue
            buffer = self.whole(source)
            alloc = self.inner.b.instructions[at]
            seen = {"dtype": buffer.type.dtype, "shape": buffer.type.shape}
            view = Builder(alloc.loc, builder.instructions)
            view.view(target, **seen)
            last = builder.instructions[-1]
            builder.instructions[-1] = Instruction(last.op, last.operands, (buffer,), last.params, (), last.loc)
            self.inner.b.instructions[at : at + 1] = builder.instructions

    def prepare_next(self, refs: Sequence[Value], references: CarriedReferences, results: Sequence[Value]) -> None:
        """Prepare the next iteration: scalars are overwritten; of two buffers, the other one becomes current; arrays that are
        yielded in each other's positions exchange their buffers."""
        sources = [self.inner.plain(self.end, v) for v in results]
        fills: list[tuple[Value, Value]] = []
        taken = self.taken_buffers(refs, references, sources)
        for ref, source, value in zip(refs, sources, results, strict=True):
            if ref not in references.parameters:
                if self.whole(source) is not self.whole(ref):
                    fills.append((source, ref))
                continue
            if taken.get(ref) is self.whole(source):
                references.yields.append(source)
                continue
            at = None if self.holds_extent(self.whole(source)) else self.claim(source)
            if at is None:
                spare = Value(RefType(value.type.dtype, value.type.shape), "spare")
                self.end.copy(source, spare)
                self.inner.copies.add(self.end.instructions, value, TWICE)
                references.yields.append(spare)
            else:
                spare = self.whole(source)
                del self.inner.b.instructions[at]
                references.yields.append(source)
            self.spares[ref] = spare
        self.fill_scalars(refs, references, fills)
        left = [ref for ref in references.parameters if ref not in taken.values()]
        for ref, spare in self.spares.items():
            t = spare.type
            freed = ref if ref in left else next(other for other in left if other not in self.spares and other.type == ref.type)
            left.remove(freed)
            references.yields.append(
                freed if freed.type == t else self.inner.view_as(self.end, freed, ArrayType(t.dtype, t.shape))
            )
            references.first.append(self.b.at(self.b.loc, "spare").alloc(dtype=t.dtype, shape=t.shape))
            references.parameters.append(spare)
            self.rotating.update((ref, freed) if freed is not ref else ())

    def taken_buffers(self, refs: Sequence[Value], references: CarriedReferences, sources: Sequence[Value]) -> dict[Value, Value]:
        """Return, for each carried reference that continues in the buffer of a carried reference, that reference: itself, if
        the body updates it in place, else another one whose array the body yields in its position. No buffer is taken twice."""
        carried = set(references.parameters)
        taken = {ref: ref for ref, source in zip(refs, sources, strict=True) if ref in carried and self.whole(source) is ref}
        free = carried - set(taken)
        for ref, source in zip(refs, sources, strict=True):
            other = self.whole(source)
            if ref in carried and ref not in taken and other in free and other.type == ref.type:
                free.remove(other)
                taken[ref] = other
                self.rotating.update((ref, other))
        return taken

    def fill_scalars(self, refs: Sequence[Value], references: CarriedReferences, fills: Sequence[tuple[Value, Value]]) -> None:
        """Overwrite the carried scalars; one that another is filled with is kept until then."""
        cells = {self.whole(ref) for ref in refs if ref not in references.parameters}
        ready = []
        for source, ref in fills:
            if self.whole(source) in cells:
                kept = self.end.alloc(dtype=source.type.dtype, shape=())
                self.end.copy(source, kept)
                source = kept
            ready.append((source, ref))
        for source, ref in ready:
            self.end.copy(source, ref)

    def restore(
        self,
        states: Sequence[Value],
        homes: Sequence[Value],
        refs: Sequence[Value],
        references: CarriedReferences,
        last: Sequence[Value],
    ) -> None:
        """Move each carried value back to its initial buffer, after the loop."""
        i = self.instruction
        ends = {ref: last[references.parameters.index(ref)] for ref in refs if ref in self.spares or ref in self.rotating}
        aside: list[Value] = []
        for ref in [ref for ref in ends if ref in self.rotating][1:]:
            aside.append(self.b.at(self.b.loc, "spare").alloc(dtype=ref.type.dtype, shape=ref.type.shape))
            self.b.copy(ends[ref], aside[-1])
            self.outer.copies.add(self.b.instructions, ref, EITHER)
            ends[ref] = aside[-1]
        for state, result, home, ref in zip(states, i.results, homes, refs, strict=False):
            if ref in ends:
                self.b.copy(ends[ref], home)
                self.outer.copies.add(self.b.instructions, result, EITHER)
            self.outer.memory[result] = home
            if home is self.outer.memory.get(state):
                self.outer.share_buffer(result, state)
        for spare in (*aside, *references.first[len(references.first) - len(self.spares) :]):
            self.b.free(spare)
