"""stencil_updates_to_select: turn updates of parts of an array into elementwise selects, so that they can be fused.

Requires: an optimised func. Keeps: its meaning. A chain of ``slice_set`` and ``slice_add`` over one array, as in a stencil or
its gradient, becomes a select for each element of the array: the update for elements inside the part, else the previous value.
One kernel then computes it without storing the values of the parts, and index-set splitting runs its loops without the select.

Not every update benefits: one that writes a few elements in place should stay. A chain is replaced if it adds to elements that
the function computes itself, or if the values that it writes are computed from the same array, as in ``u[1:-1] += f(u)``,
which cannot be done in place anyway. Parts whose start or extent is decided by values, such as the window that an iteration of a
loop writes, stay where they are unless that holds for the array as well: a select would visit the whole array each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, use_counts
from pullback.ir.core.types import BOOL, I64, ArrayType, Extent, Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Place
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, concat, pad, roll, slice_, squeeze, transpose
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.constants import constant_of
from pullback.ir.passes.editing.replay import New, replaced
from pullback.ir.shapes.extents import by_value_in

MOST_UPDATES, MOST_NARROW_UPDATES = 32, 12
"""Most updates of a chain: in general, and if most of them write only slices of extent one. Each element selects among all of
them."""
MOST_LEAVES = 64
"""Most elements from which all updates of a chain may be computed together."""
MOST_VISITED = 64
"""Most instructions or values that a search visits."""
MOST_READS = 16
"""Most loads, and most operations, per element in all its readers together if each of them recomputes it."""
MOST_WORK = 48
"""Most loads (MOST_READS) and most operations (MOST_WORK) per element in all its readers together if each of them recomputes
it."""

SHIFTING = (slice_, pad, concat, roll)
"""Ops whose readers read their operands at shifted indices."""

Producers = Mapping[Value, Instruction]


def stencil_updates_to_select(function: Function) -> Function:
    """Return the function with such chains as selects."""
    if not any(isinstance(i.op, Place) for i in function.instructions):
        return function
    producer = {v: i for i in function.instructions for v in i.results}
    chosen: set[Instruction] = set()
    uses = use_counts(function.body)
    for chain in _chains(function, uses):
        if _is_stencil(chain, producer, uses):
            chosen.update(chain)

    def emit(b: Builder, i: Instruction, new: New) -> list[Value]:
        return [_select(b, i, tuple(map(new, i.operands)))]

    return replaced(function, chosen.__contains__, emit)


def _select(b: Builder, i: Instruction, operands: Sequence[Value]) -> Value:
    """Emit an update of a part as a select for each element."""
    base, value = operands
    padding = {"start": i.params["start"], "step": i.params["step"], "shape": base.type.shape}
    moved = b.pad(value, **padding)
    inside = b.pad(b.full(True, ArrayType(BOOL, value.type.shape)), **padding)
    assert isinstance(i.op, Place)
    result: Value = b.select(inside, b.add(base, moved) if i.op.accumulate else moved, base)
    for outside in _outside(b, i.params["start"], base.type.shape, value.type.shape):
        result = b.select(outside, base, result)
    return result


def _outside(b: Builder, start: Sequence[Extent | None], shape: Shape, part: Shape) -> Iterator[Value]:
    """Emit, for each axis along which an update writes few elements, a condition that holds for most elements and for none of
    these: after them if they are near the start, else before them."""
    for axis, (first, extent) in enumerate(zip(start, part, strict=True)):
        if first is None or not isinstance(extent, int) or isinstance(shape[axis], int):
            continue
        position = b.iota(axis=axis, shape=shape, dtype=I64)
        if isinstance(first, int):
            yield b.ge(position, b.full(first + extent, ArrayType(I64, shape)))
        else:
            yield b.lt(position, b.spread(b.count(shape=(first,)), shape))


def _chains(function: Function, uses: Mapping[Value, int]) -> list[list[Instruction]]:
    """Return the chains of updates: each update is the only reader of the previous one."""
    chains: dict[Value, list[Instruction]] = {}
    for i in function.instructions:
        if not isinstance(i.op, Place) or i.operands[0].type.dtype.is_complex or any(s != 1 for s in i.params["step"]):
            continue
        chain = chains.pop(i.operands[0], []) if uses[i.operands[0]] == 1 else []
        chain.append(i)
        chains[i.result] = chain
    return [chain for chain in chains.values() if len(chain) <= (MOST_UPDATES if _has_borders(chain) else MOST_NARROW_UPDATES)]


def _has_borders(chain: Sequence[Instruction]) -> bool:
    """Return whether the narrow updates of a chain are as few as those of the borders of its wide ones, of which a corner has
    three."""
    wide = sum(map(_is_wide, chain))
    return len(chain) - wide <= 3 * wide


def _is_stencil(chain: Sequence[Instruction], producer: Producers, uses: Mapping[Value, int]) -> bool:
    """Return whether a chain is to be replaced by selects."""
    root = chain[0].operands[0]
    if not root.type.shape or any(not e for i in chain for e in i.operands[1].type.shape):
        return False
    if not by_value_in(root.type.shape) and any(by_value_in((*i.params["start"], *i.operands[1].type.shape)) for i in chain):
        return False
    if sum(_count_leaves(i.operands[1], producer, uses) for i in chain) > MOST_LEAVES:
        return False
    definition = producer.get(root)
    is_computed = definition is not None and (isinstance(definition.op, Elementwise) or definition.op is pad)
    if is_computed and all(isinstance(i.op, Place) and i.op.accumulate for i in chain):
        return True
    if constant_of(root, producer) is not None and any(_is_wide(i) and _is_most(i) for i in chain):
        return True
    return any(_is_wide(i) and _depends_on(i.operands[1], root, producer) for i in chain)


def _is_wide(i: Instruction) -> bool:
    """Return whether an update is not known to have extent one along an axis where the array has more."""
    base, value = (v.type.shape for v in i.operands)
    return all(e != 1 or full_extent == 1 for e, full_extent in zip(value, base, strict=True))


def _is_most(i: Instruction) -> bool:
    """Return whether an update writes at least half of the elements of its array, as far as extents are known."""
    sizes = [math.prod(e for e in v.type.shape if isinstance(e, int)) for v in i.operands]
    return 2 * sizes[1] >= sizes[0]


def _count_leaves(value: Value, producer: Producers, uses: Mapping[Value, int]) -> int:
    """Return the number of elements from which an element of a value is computed; shifted reads count separately. A value with
    several readers that is computed elementwise, such as the cotangent of a sum of shifted arrays, counts as one: it is
    stored, or ``shifted`` accounts for its cost."""
    stack, seen, count = [value], {value}, 0
    while stack and count <= MOST_LEAVES:
        current = stack.pop()
        if not current.type.shape:
            continue
        definition = producer.get(current)
        is_shared = uses[current] > 1 and definition is not None and isinstance(definition.op, Elementwise)
        is_inner = definition is not None and isinstance(definition.op, Elementwise | Reindex) and not is_shared
        count += not is_inner
        for v in definition.operands if definition is not None and is_inner else ():
            is_leaf = v not in producer and bool(v.type.shape)
            if v not in seen or is_leaf:
                seen.add(v)
                stack.append(v)
    return count


def _depends_on(value: Value, root: Value, producer: Producers) -> bool:
    """Return whether a value is computed from ``root`` elementwise or through shifts, not through broadcasts."""
    stack, seen = [value], {value}
    while stack and len(seen) < MOST_VISITED:
        maker = producer.get(stack.pop())
        is_moved = maker is not None and isinstance(maker.op, Reindex) and not maker.op.view and maker.op is not broadcast
        if maker is None or not (is_moved or isinstance(maker.op, Elementwise)):
            continue
        if root in maker.operands:
            return True
        new = [v for v in maker.operands if v not in seen]
        seen.update(new)
        stack += new
    return False


def recomputed_stencil_values(function: Function) -> frozenset[Value]:
    """Return the elementwise values that are read at shifted indices, as in a stencil, and that each reader recomputes because
    that is cheap."""
    work = _RecomputedValues(function)
    for i in function.instructions:
        work.visit(i)
    return frozenset(work.chosen)


class _RecomputedValues:
    """Selects the values that are recomputed. ``cost``: loads and operations per element of each, and whether all of these are
    cheap."""

    def __init__(self, function: Function) -> None:
        self.producer = {v: i for i in function.instructions for v in i.results}
        self.position = {v: k for k, i in enumerate(function.instructions) for v in i.results}
        self.results = set(function.results)
        self.readers: dict[Value, list[Instruction]] = {}
        for i in function.instructions:
            for v in dict.fromkeys(i.operands):
                self.readers.setdefault(v, []).append(i)
        self.chosen: set[Value] = set()
        self.cost: dict[Value, tuple[int, int, bool]] = {}

    def visit(self, i: Instruction) -> None:
        """Select a value and the instructions that only it needs, if recomputing them is cheap enough."""
        if not isinstance(i.op, Elementwise) or not i.result.type.shape or i.result.type.dtype.is_complex:
            return
        readers = self.reader_count(i.result)
        if readers is None:
            return
        tree = self.tree(i)
        loads, operations, is_cheap = self.price(tree)
        if (readers == 1 and loads <= MOST_LEAVES) or (
            readers * loads <= MOST_READS and readers * operations <= MOST_WORK and is_cheap
        ):
            self.chosen.update(k.result for k in tree)
            self.cost[i.result] = loads, operations, is_cheap

    def tree(self, i: Instruction) -> list[Instruction]:
        """Return an instruction and the elementwise ones that only it needs."""
        tree = {i.result: i}
        pending = {self.position[v]: v for v in i.operands if v in self.position}
        while pending and len(tree) < MOST_VISITED:
            value = pending.pop(max(pending))
            definition = self.producer[value]
            is_inner = all(r.result in tree for r in self.readers[value] if len(r.results) == 1)
            is_alone = is_inner and all(isinstance(r.op, Elementwise) for r in self.readers[value]) and value not in self.results
            if is_alone and value.type.shape and isinstance(definition.op, Elementwise) and value not in self.chosen:
                tree[value] = definition
                pending.update((self.position[v], v) for v in definition.operands if v in self.position)
        return list(tree.values())

    def reader_count(self, value: Value) -> int | None:
        """Return the number of readers of a value, including those of its shifted views; None if it must be stored, or if no
        reader is shifted."""
        if value in self.results:
            return None
        count, is_read_in_place, is_moved = 0, False, False
        for reader in self.readers.get(value, ()):
            if reader.op in SHIFTING or (reader.op is transpose and self.has_only_shifted_readers(reader.result)):
                readers = self.view_reader_count(reader.result)
                if readers is None:
                    return None
                count, is_moved = count + readers, True
            elif isinstance(reader.op, Elementwise) and not any(v.type.dtype.is_complex for v in reader.operands):
                is_read_in_place = True
            else:
                return None
        return count + is_read_in_place if is_moved else None

    def has_only_shifted_readers(self, value: Value) -> bool:
        """Return whether all readers of a view read it at shifted indices."""
        return all(reader.op in SHIFTING for reader in self.readers.get(value, ()))

    def view_reader_count(self, value: Value) -> int | None:
        """Return the number of elementwise readers of a view, through other views; None if it must be stored or there are too
        many."""
        count, stack = 0, [value]
        while stack:
            current = stack.pop()
            if count + len(stack) > MOST_READS or (current in self.results and not self.is_mostly_moved(current)):
                return None
            count += current in self.results
            for reader in self.readers.get(current, ()):
                if isinstance(reader.op, Reindex) and (reader.op is squeeze or not reader.op.view):
                    stack.append(reader.result)
                elif isinstance(reader.op, Elementwise | Reduce) and not any(v.type.dtype.is_complex for v in reader.operands):
                    count += 1
                else:
                    return None
        return count

    def is_mostly_moved(self, value: Value) -> bool:
        """Return whether nearly all elements of a view are those of one operand, so that storing the view computes little
        else."""
        i = self.producer[value]
        if i.op is not concat:
            return i.op in SHIFTING
        return sum(not isinstance(v.type.shape[i.params["axis"]], int) for v in i.operands) == 1

    def price(self, tree: Sequence[Instruction]) -> tuple[int, int, bool]:
        """Return the loads and the operations per element, and whether all of them are cheap."""
        loads, operations, is_cheap = 0, len(tree), all(isinstance(i.op, Elementwise) and i.op.cheap for i in tree)
        inside = {i.result for i in tree}
        stack = [v for i in tree for v in i.operands if v not in inside]
        while stack:
            value = stack.pop()
            maker = self.producer.get(value)
            if value in self.cost:
                more = self.cost[value]
                loads, operations, is_cheap = loads + more[0], operations + more[1], is_cheap and more[2]
            elif maker is not None and isinstance(maker.op, Reindex) and (maker.op is broadcast or not maker.op.view):
                stack += maker.operands
            elif value.type.shape and not (maker is not None and isinstance(maker.op, Constant)):
                loads += 1
        return loads, operations, is_cheap
