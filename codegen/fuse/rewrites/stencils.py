"""stencils: updates of parts of an array become elementwise, so that groups take them in.

Requires: an optimised func. Keeps: its meaning. A chain of ``slice_set`` and ``slice_add`` over one array, of which a stencil or
its reverse is made, becomes a choice for each element of the array: the update, where it lies inside the part, else what was
there. One kernel then computes it without the values of the parts in memory, and ``borders`` has its loops run without
the choice.

Not every update is better so: one that writes a few elements in place should go on to. A chain is taken apart if it adds to
elements that the function computes itself, or if what it writes is computed from the very array, as in ``u[1:-1] += f(u)``; that
cannot be in place anyway.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction, use_counts
from pullback.ir.core.types import BOOL, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Place
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, concat, pad, slice_, squeeze, transpose
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.replay import New, replaced

MOST_LINKS, MOST_NARROW = 32, 12
"""So many updates a chain may have, and so many if some write a few elements alone: each element chooses among all of them."""
MOST_IN_ALL = 64
"""So many elements all updates of a chain may be computed from."""
MOST_WALKED = 64
MOST_READS = 16
MOST_WORK = 48
"""So many loads, and so many operations, an element may take in all its readers together if it is computed again by each."""

Producers = Mapping[Value, Instruction]


def patched(function: Function) -> Function:
    """The function with such chains as choices."""
    if not any(isinstance(i.op, Place) for i in function.instructions):
        return function
    producer = {v: i for i in function.instructions for v in i.results}
    chosen: set[Instruction] = set()
    uses = use_counts(function.body)
    for chain in _chains(function, uses):
        if _is_stencil(chain, producer, uses):
            chosen.update(chain)

    def made(b: Builder, i: Instruction, new: New) -> list[Value]:
        return [_choice(b, i, tuple(map(new, i.operands)))]

    return replaced(function, chosen.__contains__, made)


def _choice(b: Builder, i: Instruction, operands: Sequence[Value]) -> Value:
    """An update of a part, as a choice for each element."""
    base, value = operands
    place = {"start": i.params["start"], "step": i.params["step"], "shape": base.type.shape}
    moved = b.pad(value, **place)
    inside = b.pad(b.full(True, ArrayType(BOOL, value.type.shape)), **place)
    assert isinstance(i.op, Place)
    found: Value = b.select(inside, b.add(base, moved) if i.op.accumulate else moved, base)
    return found


def _chains(function: Function, uses: Mapping[Value, int]) -> list[list[Instruction]]:
    """The updates of parts, each with those of its result that follow it and are its only readers."""
    found: dict[Value, list[Instruction]] = {}
    for i in function.instructions:
        if not isinstance(i.op, Place) or i.operands[0].type.dtype.is_complex or any(s != 1 for s in i.params["step"]):
            continue
        chain = found.pop(i.operands[0], []) if uses[i.operands[0]] == 1 else []
        chain.append(i)
        found[i.result] = chain
    return [chain for chain in found.values() if len(chain) <= (MOST_LINKS if all(map(_is_wide, chain)) else MOST_NARROW)]


def _is_stencil(chain: Sequence[Instruction], producer: Producers, uses: Mapping[Value, int]) -> bool:
    root = chain[0].operands[0]
    if not root.type.shape or any(not e for i in chain for e in i.operands[1].type.shape):
        return False
    if sum(_leaves(i.operands[1], producer, uses) for i in chain) > MOST_IN_ALL:
        return False
    made = producer.get(root)
    if made is not None and (isinstance(made.op, Elementwise) or made.op is pad):
        return all(isinstance(i.op, Place) and i.op.accumulate for i in chain)
    return any(_is_wide(i) and _reads(i.operands[1], root, producer) for i in chain)


def _is_wide(i: Instruction) -> bool:
    """Whether an update is more than one place thick along each axis, as far as is known."""
    base, value = (v.type.shape for v in i.operands)
    return all(e != 1 or whole == 1 for e, whole in zip(value, base, strict=True))


def _leaves(value: Value, producer: Producers, uses: Mapping[Value, int]) -> int:
    """Return how many elements an element of a value is computed from, shifted ones apart. What several read and takes more than
    an element, such as the cotangent of a sum of shifted arrays, is one: it is stored, or else ``shifted`` says what it takes."""
    stack, seen, count = [value], {value}, 0
    while stack and count <= MOST_IN_ALL:
        current = stack.pop()
        if not current.type.shape:
            continue
        made = producer.get(current)
        is_shared = uses[current] > 1 and made is not None and isinstance(made.op, Elementwise)
        is_inner = made is not None and isinstance(made.op, Elementwise | Reindex) and not is_shared
        count += not is_inner
        for v in made.operands if made is not None and is_inner else ():
            is_leaf = v not in producer and bool(v.type.shape)
            if v not in seen or is_leaf:
                seen.add(v)
                stack.append(v)
    return count


def _reads(value: Value, root: Value, producer: Producers) -> bool:
    """Whether each element of a value is computed from others of another, beside it or shifted, rather than all from one."""
    stack, seen = [value], {value}
    while stack and len(seen) < MOST_WALKED:
        made = producer.get(stack.pop())
        is_moved = made is not None and isinstance(made.op, Reindex) and not made.op.view and made.op is not broadcast
        if made is None or not (is_moved or isinstance(made.op, Elementwise)):
            continue
        if root in made.operands:
            return True
        new = [v for v in made.operands if v not in seen]
        seen.update(new)
        stack += new
    return False


def shifted(function: Function) -> frozenset[Value]:
    """The elementwise values that other places read, as neighbours do, and that each reader computes again, for that is cheap."""
    work = _Shifted(function)
    for i in function.instructions:
        work.visit(i)
    return frozenset(work.chosen)


class _Shifted:
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
        if not isinstance(i.op, Elementwise) or not i.result.type.shape or i.result.type.dtype.is_complex:
            return
        readers = self.counted(i.result)
        if readers is None:
            return
        tree = self.tree(i)
        loads, operations, is_cheap = self.price(tree)
        if (readers == 1 and loads <= MOST_IN_ALL) or (
            readers * loads <= MOST_READS and readers * operations <= MOST_WORK and is_cheap
        ):
            self.chosen.update(k.result for k in tree)
            self.cost[i.result] = loads, operations, is_cheap

    def tree(self, i: Instruction) -> list[Instruction]:
        """An instruction with the elementwise ones that nothing else needs."""
        tree = {i.result: i}
        waiting = {self.position[v]: v for v in i.operands if v in self.position}
        while waiting and len(tree) < MOST_WALKED:
            value = waiting.pop(max(waiting))
            made = self.producer[value]
            is_inner = all(r.result in tree for r in self.readers[value] if len(r.results) == 1)
            is_alone = is_inner and all(isinstance(r.op, Elementwise) for r in self.readers[value]) and value not in self.results
            if is_alone and value.type.shape and isinstance(made.op, Elementwise) and value not in self.chosen:
                tree[value] = made
                waiting.update((self.position[v], v) for v in made.operands if v in self.position)
        return list(tree.values())

    def counted(self, value: Value) -> int | None:
        """How many readers a value has, those of shifted views included; None if it must be in memory, or none is shifted."""
        if value in self.results:
            return None
        count, is_beside, is_moved = 0, False, False
        for reader in self.readers.get(value, ()):
            if reader.op in (slice_, pad, concat) or (reader.op is transpose and self.is_moved(reader.result)):
                found = self.behind(reader.result)
                if found is None:
                    return None
                count, is_moved = count + found, True
            elif isinstance(reader.op, Elementwise) and not any(v.type.dtype.is_complex for v in reader.operands):
                is_beside = True
            else:
                return None
        return count + is_beside if is_moved else None

    def is_moved(self, value: Value) -> bool:
        """Whether all that reads a view reads other places of it."""
        return all(reader.op in (slice_, pad, concat) for reader in self.readers.get(value, ()))

    def behind(self, value: Value) -> int | None:
        """How many elementwise readers a view has, through other views."""
        count, stack = 0, [value]
        while stack:
            current = stack.pop()
            if current in self.results or count + len(stack) > MOST_READS:
                return None
            for reader in self.readers.get(current, ()):
                if isinstance(reader.op, Reindex) and (reader.op is squeeze or not reader.op.view):
                    stack.append(reader.result)
                elif isinstance(reader.op, Elementwise | Reduce) and not any(v.type.dtype.is_complex for v in reader.operands):
                    count += 1
                else:
                    return None
        return count

    def price(self, tree: Sequence[Instruction]) -> tuple[int, int, bool]:
        """Loads and operations that an element takes, and whether all of them are cheap."""
        loads, operations, is_cheap = 0, len(tree), all(isinstance(i.op, Elementwise) and i.op.cheap for i in tree)
        inside = {i.result for i in tree}
        stack = [v for i in tree for v in i.operands if v not in inside]
        while stack:
            value = stack.pop()
            made = self.producer.get(value)
            if value in self.cost:
                more = self.cost[value]
                loads, operations, is_cheap = loads + more[0], operations + more[1], is_cheap and more[2]
            elif made is not None and isinstance(made.op, Reindex) and (made.op is broadcast or not made.op.view):
                stack += made.operands
            elif value.type.shape and not (made is not None and isinstance(made.op, Constant)):
                loads += 1
        return loads, operations, is_cheap
