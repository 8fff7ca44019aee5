"""Mark the reads and writes of elements that no later iteration overwrites.

Reverse mode runs a loop backwards and reads values as they were in each iteration. An element that keeps its value can be read
from the array as it is after the loop, so that neither the array nor the element is saved. In a factorisation by loops these are
all elements whose values the derivatives read:

    for k in range(n):                              scan ... (%k, %a0, ...) {
        for i in range(k + 1, n):                       scan ... (%i0, %a1, ...) {
            for j in range(k + 1, n):                       scan ... (%j0, %a2, ...) {
                a[i, j] -= f[i] * a[k, j]                       gather %a2, %k, %j {axes=[0, 1], final=3}

Iteration k' > k writes rows after k' only. ``final=m`` says that an element read, or written, is not overwritten later in the m
innermost loops that carry the array: neither in the same iteration nor in those that follow. It holds for the array that the
instruction reads or returns, wherever it is executed, so it may be moved or dropped.

``initial=1`` says that an element read was not overwritten earlier in the innermost loop that carries the array: it is that of
the array before the loop. Such are the factors ``a[i, k]`` that iteration i of the inner loop reads before it writes row i.

Proofs are those of ``affine.Forms``: on one axis the indices of the read are before or after those of each later write.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, walk, with_contents, with_regions
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Gather, Place, RollBy, Scatter
from pullback.ir.ops.control.loops import Loop, Scan, Switch
from pullback.ir.passes.editing.updates import updated_operand
from pullback.ir.passes.loops.affine import Atom, Facts, Form, Forms

MOST_WRITES = 64
"""The largest number of writes of an iteration to one array that reads are compared with."""
Interval = tuple[Form, Form]
"""The least and the greatest index along an axis."""
Part = list[list[Interval] | None]
"""The indices along each axis, as intervals that contain them; None for an axis that may be read, or written, in full."""
Path = tuple[tuple[Instruction, int], ...]


@dataclass(frozen=True, eq=False)
class Write:
    """A write to an array: the elements, and what holds where it is executed."""

    part: Part
    facts: Facts


@dataclass(frozen=True, eq=False)
class Step:
    """An update of an array: the array after it, and its writes."""

    after: Value
    writes: list[Write]


@dataclass(frozen=True, eq=False)
class Chain:
    """The updates of an array in the body of a loop or branch. ``start`` and ``end``: the array before and after them;
    ``outside``: the array after the loop or branch."""

    start: Value
    end: Value
    steps: list[Step]
    outside: Value

    def versions(self) -> list[Value]:
        """Return the array before the first update and after each."""
        return [self.start, *(s.after for s in self.steps)]


def mark_final(block: Block) -> Block:
    """Return a block with the reads and writes in its loops marked that are of final elements, and no others."""
    if not any(isinstance(i.op, Loop) and _updates(i) for i in walk(block)):
        return without_marks(block)
    return _Marker(block).marked(block)


def final_elements(function: Function) -> Function:
    """Mark the reads and writes of elements that no later iteration overwrites.

    Requires: a func without transforms. Keeps: values bit by bit.
    """
    return replace(function, body=mark_final(function.body))


def without_marks(block: Block) -> Block:
    """Return a block without the marks."""
    if not any("final" in i.params or "initial" in i.params for i in walk(block)):
        return block
    return _rebuilt(block, lambda i: (0, 0))


def _updates(loop: Instruction) -> bool:
    return any(isinstance(i.op, Scatter | Place) for region in loop.regions for i in walk(region))


def with_marks(i: Instruction, final: int, initial: int = 0) -> Instruction:
    """Return a read or write with the numbers of loops for which its elements are final, or initial; 0 for none."""
    marks = {"final": final, "initial": initial}
    if all(i.params.get(name, 0) == levels for name, levels in marks.items()):
        return i
    params = {name: value for name, value in i.params.items() if name not in marks}
    return replace(i, params={**params, **{name: levels for name, levels in marks.items() if levels}})


def is_read(i: Instruction) -> bool:
    """Return whether an instruction reads elements of its first operand, and may be marked."""
    return (isinstance(i.op, Gather) and not isinstance(i.op, RollBy)) or i.op is OPS["slice"]


def _rebuilt(block: Block, marks: Callable[[Instruction], tuple[int, int]]) -> Block:
    instructions = []
    for i in block.instructions:
        if is_read(i) or isinstance(i.op, Scatter | Place):
            i = with_marks(i, *marks(i))
        instructions.append(with_regions(i, [_rebuilt(region, marks) for region in i.regions]) if i.regions else i)
    return with_contents(block, instructions, block.results)


class _Marker:
    """The forms and the updates of a block. ``chains``: by a version of an array, the updates in the block of the version."""

    def __init__(self, block: Block) -> None:
        self.forms = Forms(block)
        self.chains: dict[Value, Chain] = {}
        self.shared: set[Value] = set()
        self._collect(block)
        for version in self.shared:
            del self.chains[version]

    def marked(self, block: Block) -> Block:
        """Return a block with its marks."""
        final = {i: self.levels(i) for i in walk(block) if is_read(i) or isinstance(i.op, Scatter | Place)}
        return _rebuilt(block, lambda i: (final[i], int(not final[i] and self.is_initial(i))))

    # updates

    def _collect(self, block: Block) -> None:
        for i in block.instructions:
            for region in i.regions:
                self._collect(region)
            if isinstance(i.op, Loop):
                body, count = i.regions[-1], i.params["carried"]
                pairs = zip(body.parameters[1 : 1 + count], body.results[:count], i.results[:count], strict=True)
                for start, end, outside in pairs:
                    if _is_array(start) and (steps := self._steps(end, start)) is not None:
                        self._add(Chain(start, end, steps, outside))
            elif isinstance(i.op, Switch):
                for region in i.regions:
                    for end, outside in zip(region.results, i.results, strict=True):
                        base = updated_operand(i, outside, True) if _is_array(outside) else None
                        parameters = [p for p, v in zip(region.parameters, i.operands[1:], strict=True) if v is base]
                        if parameters and (steps := self._steps(end, parameters[0])) is not None:
                            self._add(Chain(parameters[0], end, steps, outside))

    def _add(self, chain: Chain) -> None:
        """Note the chain of its versions. One of several chains is in none: the array after it is not determined."""
        for version in chain.versions():
            if version in self.chains:
                self.shared.add(version)
            elif version not in self.forms.sources:
                self.chains[version] = chain

    def _steps(self, end: Value, start: Value) -> list[Step] | None:
        """Return the updates that lead from ``start`` to ``end`` in a block; None if something else does."""
        steps: list[Step] = []
        value: Value = end
        total = 0
        while value is not start:
            i = self.forms.definitions.get(value)
            base = updated_operand(i, value, True) if i is not None else None
            writes = self._writes(i, value) if i is not None and base is not None else None
            if base is None or writes is None:
                return None
            steps.append(Step(value, writes))
            total += len(writes)
            if total > MOST_WRITES:
                return None
            value = base
        return steps[::-1]

    def _writes(self, i: Instruction, result: Value) -> list[Write] | None:
        """Return the writes of an update; None if they are not known."""
        if isinstance(i.op, Scatter | Place):
            return [Write(self._written(i), self._facts(self.forms.home[result]))]
        position, writes = i.results.index(result), []
        for region in i.regions[-1:] if isinstance(i.op, Loop) else i.regions:
            if isinstance(i.op, Loop):
                start = region.parameters[1 + position]
            else:
                base = updated_operand(i, result, True)
                start = next(p for p, v in zip(region.parameters, i.operands[1:], strict=True) if v is base)
            steps = self._steps(region.results[position], start)
            if steps is None:
                return None
            writes += [w for s in steps for w in s.writes]
        return writes if len(writes) <= MOST_WRITES else None

    def _facts(self, path: Path) -> Facts:
        """Return what the branches on a path say."""
        facts = Facts()
        for i, k in path:
            if isinstance(i.op, Switch) and len(i.regions) == 2:
                facts = facts.and_(self.forms.facts(i.operands[0], bool(k)))
        return facts

    # elements

    def _written(self, i: Instruction) -> Part:
        """Return the elements that a write may change."""
        if isinstance(i.op, Place):
            shape = i.operands[1].type.shape
            return [self._regular(*axis) for axis in zip(i.params["start"], i.params["step"], shape, strict=True)]
        base, values, axes = i.operands[0], i.operands[-1], i.params["axes"]
        rank = i.operands[1].type.rank
        rest = [a for a in range(base.type.rank) if a not in axes]
        part: Part = [None] * base.type.rank
        if "start" in i.params:
            for a, extent in zip(rest, values.type.shape[rank:], strict=True):
                part[a] = self._regular(i.params["start"][a], i.params["step"][a], extent)
        for a, index in zip(axes, i.operands[1:-1], strict=True):
            part[a] = self._indices(index, a in i.params.get("in_range", ()))
        return part

    def _regular(self, start: int | str | None, step: int, extent: int | str) -> list[Interval] | None:
        """Return the indices of a regular part of an axis; None if it is taken in full, or if they are not known."""
        if start is None:
            return None
        first, count = self.forms.of_start(start), self.forms.of_extent(extent)
        return None if first is None or count is None else [(first, first.plus(count.shifted(-1), step))]

    def _indices(self, index: Value, is_in_range: bool) -> list[Interval] | None:
        """Return the elements of an array of indices, each as an interval; None if they are not known, or if one may be negative
        and so counts from the end."""
        scalars = self._scalars(index)
        forms = [self.forms.of(v) for v in scalars or ()]
        facts = self._facts(self.forms.home[index]) if not is_in_range and forms else Facts()
        if not forms or not (is_in_range or all(self.forms.is_positive(f.shifted(1), facts, _same) for f in forms)):
            return None
        return [(f, f) for f in forms]

    def _scalars(self, index: Value) -> list[Value] | None:
        """Return the scalars that an array of indices consists of; None if it is computed in another way."""
        index = self.forms.root(index)
        if not index.type.shape:
            return [index]
        i = self.forms.definitions.get(index)
        if i is None or i.op.name not in ("broadcast", "concat"):
            return None
        scalars: list[Value] = []
        for operand in i.operands:
            inner = self._scalars(operand)
            if inner is None:
                return None
            scalars += inner
        return scalars

    def _element_read(self, i: Instruction) -> tuple[Value, Part]:
        """Return the array that an instruction reads, slices of it seen through, and the elements."""
        x = self.forms.root(i.operands[0])
        if i.op is OPS["slice"]:
            axes = zip(i.params["start"], i.params["step"], i.result.type.shape, strict=True)
            part = [self._regular(*axis) for axis in axes]
        else:
            part = [None] * x.type.rank
            for a, index in zip(i.params["axes"], i.operands[1:], strict=True):
                part[a] = self._indices(index, a in i.params.get("in_range", ()))
        while (outer := self.forms.definitions.get(x)) is not None and outer.op is OPS["slice"]:
            outer_axes = zip(part, outer.params["start"], outer.params["step"], x.type.shape, strict=True)
            part = [self._within(*axis) for axis in outer_axes]
            x = self.forms.root(outer.operands[0])
        return x, part

    def _within(
        self, intervals: list[Interval] | None, start: int | str | None, step: int, extent: int | str
    ) -> list[Interval] | None:
        """Return the indices into an array of those into a slice of it."""
        if start is None or intervals is None:
            return intervals if start is None else self._regular(start, step, extent)
        first = self.forms.of_start(start)
        return None if first is None else [(first.plus(low, step), first.plus(high, step)) for low, high in intervals]

    # proofs

    def levels(self, i: Instruction) -> int:
        """Return the number of loops for which the elements that an instruction reads or writes are final; 0 if not all loops
        that carry the array are among them and reading the array of the next one costs more than saving the elements."""
        if is_read(i):
            version, part = self._element_read(i)
            facts = self._facts(self.forms.home[i.results[0]])
        elif not i.op.accumulate and (isinstance(i.op, Place) or not i.operands[1].type.shape):  # type: ignore[attr-defined]
            version, part = i.results[0], self._written(i)
            facts = self._facts(self.forms.home[version])
        else:
            return 0
        rank, levels = version.type.rank, 0
        while version in self.chains:
            chain = self.chains[version]
            path = self.forms.home[version]
            instruction, _ = path[-1]
            if not self._is_kept(part, facts, version, chain, instruction, len(path), later=True):
                break
            levels += isinstance(instruction.op, Loop)
            version = chain.outside
        is_in_loop = any(isinstance(i.op, Loop) for i, _ in self.forms.home[version])
        return levels if levels >= rank or not is_in_loop else 0

    def is_initial(self, i: Instruction) -> bool:
        """Return whether the elements that an instruction reads are those before the loop that carries the array."""
        if not is_read(i):
            return False
        version, part = self._element_read(i)
        path = self.forms.home[version] if version in self.chains else ()
        if not path or not isinstance(path[-1][0].op, Loop):
            return False
        facts = self._facts(self.forms.home[i.results[0]])
        return self._is_kept(part, facts, version, self.chains[version], path[-1][0], len(path), later=False)

    def _is_kept(
        self, part: Part, facts: Facts, version: Value, chain: Chain, instruction: Instruction, depth: int, later: bool
    ) -> bool:
        """Return whether elements of a version are not written by the updates that follow: those of the same iteration after it,
        and, for a loop, all updates of later iterations. Not ``later``: by the updates before it."""
        position = chain.versions().index(version)

        def is_of_inner_loop(atom: Atom) -> Atom:
            home = self.forms.home[atom.key] if isinstance(atom.key, Value) else ()
            return Atom(atom.key, any(isinstance(i.op, Loop) for i, _ in home[depth:]))

        def is_of_iteration(atom: Atom) -> Atom:
            home = self.forms.home[atom.key] if isinstance(atom.key, Value) else ()
            return Atom(atom.key, any(i is instruction for i, _ in home))

        steps = chain.steps[position:] if later else chain.steps[:position]
        if not all(self._are_apart(part, facts, w, is_of_inner_loop) for s in steps for w in s.writes):
            return False
        if not isinstance(instruction.op, Loop):
            return True
        index = instruction.regions[-1].parameters[0]
        this, other = Form({Atom(index): 1}), Form({Atom(index, True): 1})
        if (isinstance(instruction.op, Scan) and instruction.params["reverse"]) is later:
            this, other = other, this
        facts = facts.and_(Facts((other.plus(this, -1).shifted(-1),)))
        return all(self._are_apart(part, facts, w, is_of_iteration) for s in chain.steps for w in s.writes)

    def _are_apart(self, part: Part, facts: Facts, write: Write, rename: Callable[[Atom], Atom]) -> bool:
        """Return whether elements are not among those of a write in an iteration whose atoms ``rename`` gives."""
        facts = facts.and_(write.facts.mapped(rename))

        def is_before(a: Form, b: Form) -> bool:
            return self.forms.is_positive(b.plus(a, -1), facts, rename)

        def are_disjoint(x: Interval, y: Interval) -> bool:
            low, high = (f.mapped(rename) for f in y)
            return is_before(x[1], low) or is_before(high, x[0])

        axes = zip(part, write.part, strict=True)
        return any(a and b and all(are_disjoint(x, y) for x in a for y in b) for a, b in axes)


def _same(atom: Atom) -> Atom:
    return atom


def _is_array(value: Value) -> bool:
    return isinstance(value.type, ArrayType) and bool(value.type.shape)
