"""loop_versions: write innermost counted loops twice, without their checks of indices for the case that all of them hold.

An index that grows or shrinks with the iterations by the same step is in range in all of them if it is in the first and the last.
A branch before the loop tests that, and chooses the loop without the checks, in which these indices are proved:

    %s: f64[] = scan %n, %0, %x, %a {...} (%j, ...) {          ...
      %i: i64[] = add %a, %j                                   %ok: i64[] = cast %c
      %e: i64[] = count {shape=[m]}                            %s: f64[] = switch %ok, %n, %0, %x, %a (...) {
      %in: bool[] = is_index %i, %e                      ->      (the loop as it is)
      check %in {error=IndexError, ...}                        } (...) {
      %v: f64[] = gather %x, %i {axes=[0]}                       (the loop without the check; %v with in_range=[0])
      ...                                                      }
    }

(%c: %a and %a + (%n - 1) are at least 0 and less than m). If it is false, the loop with the checks raises the error of the first
iteration that fails, or counts negative indices from the end. A step that a value from outside the loop decides, as in
``x[a + j * step]``, is tested too: the index does not wrap around between the first iteration and the last if it is short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, copy_block, walk, with_contents, with_regions
from pullback.ir.core.types import BOOL, I64, ArrayType, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count
from pullback.ir.ops.array.index import Gather, RollBy, Scatter
from pullback.ir.ops.control.loops import Loop, Scan, Switch, switch
from pullback.ir.ops.control.regions import Check
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.editing.replay import replay

MOST_INSTRUCTIONS = 60
"""Largest number of instructions of a body that is compiled twice."""
MOST_ENDS = 8
"""Largest number of indices that are tested before a loop."""
DEEPEST = 12
"""Largest number of additions and subtractions from the number of an iteration to an index."""
LONGEST_STEP, FARTHEST = 2**16, 2**61
"""Largest step of an index, or factor of it, and largest product of a step and the number of iterations: the first and the last
value of an index in range differ by what 64 bits hold, so that those between them do not wrap around."""
Step = tuple[int, int]
"""The least and the greatest change of a scalar from one iteration to the next; it is the same in all iterations."""
NO_STEP: Step = (0, 0)
Access = tuple[Value, Extent]
"""An index and the extent of an axis that it is into."""


def loop_versions(function: Function) -> Function:
    """Write such loops twice.

    Requires: an optimised func. Keeps: values bit by bit, and the order of what can fail. Cost: another copy of each such loop.
    """
    if function.kind != "func" or not any(isinstance(i.op, Scan) for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    instructions: list[Instruction] = []
    for i in block.instructions:
        whole = i if _are_versions(i) else with_regions(i, map(_block, i.regions))
        instructions += _versions(whole) if isinstance(i.op, Scan) else [whole]
    return with_contents(block, instructions, block.results)


def _are_versions(i: Instruction) -> bool:
    """Return whether a branch chooses between two loops, of which one is the other without checks."""
    if not isinstance(i.op, Switch) or [[k.op.name for k in region.instructions] for region in i.regions] != [["scan"]] * 2:
        return False
    checked, proved = (Counter(k.op.name for k in walk(region)) for region in i.regions)
    return proved < checked


def _versions(i: Instruction) -> list[Instruction]:
    """Return what replaces a loop."""
    (body,) = i.regions
    inside = list(walk(body))
    is_small = len(inside) <= MOST_INSTRUCTIONS and not any(isinstance(k.op, Loop) for k in inside)
    if not is_small or not any(isinstance(k.op, Check) for k in inside):
        return [i]
    if not all(isinstance(v.type, ArrayType) for v in (*i.operands, *i.results)):
        return [i]
    return _Loop(i).versions()


def proved_axes(i: Instruction) -> tuple[int, ...]:
    """Return the axes of an access whose indices are proved to be in range."""
    return tuple(i.params.get("in_range", ()))


@dataclass(eq=False)
class _Loop:
    """A counted loop without loops inside. ``sources``: the values outside branches that parameters of their regions are;
    ``definitions``: the instructions of values of the body; ``steps``: see ``step``; ``factors``: of the values with such a step,
    the factors of it that are taken to be at most ``LONGEST_STEP``; ``captures``: the operands that parameters of the body are in
    all iterations."""

    loop: Instruction
    sources: dict[Value, Value] = field(default_factory=dict)
    definitions: dict[Value, Instruction] = field(default_factory=dict)
    steps: dict[Value, Step | None] = field(default_factory=dict)
    factors: dict[Value, frozenset[Value]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (body,) = self.loop.regions
        for i in walk(body):
            self.definitions.update((v, i) for v in i.results)
            if isinstance(i.op, Switch):
                for region in i.regions:
                    self.sources.update(zip(region.parameters, i.operands[1:], strict=True))
        first = self.loop.op.first(self.loop.params)  # type: ignore[attr-defined]
        taken = self.loop.params["carried"] + self.loop.params["sliced"]
        self.captures = dict(zip(body.parameters[1 + taken :], self.loop.operands[first + taken :], strict=True))
        self.steps[body.parameters[0]] = (-1, -1) if self.loop.params["reverse"] else (1, 1)
        self.steps.update((v, None) for v in body.parameters[1 : 1 + taken])
        self.steps.update((v, NO_STEP) for v in self.captures)

    def root(self, value: Value) -> Value:
        """Return the value outside branches that a parameter of their regions is."""
        while value in self.sources:
            value = self.sources[value]
        return value

    def step(self, value: Value, depth: int = 0) -> Step | None:
        """Return by what a scalar changes from one iteration to the next, if that is the same in all; else None."""
        value = self.root(value)
        if value not in self.steps:
            i = self.definitions.get(value)
            is_deep = i is None or depth > DEEPEST
            self.steps[value] = None if i is None or is_deep else self.computed_step(i, depth + 1)
        return self.steps[value]

    def computed_step(self, i: Instruction, depth: int) -> Step | None:
        """See ``step``."""
        if not isinstance(i.op, Elementwise | Gather | Constant | Count) or not is_pure(i) or i.result.type.shape:
            return None
        is_proved = isinstance(i.op, Gather) and set(i.params["axes"]) <= set(proved_axes(i))
        if isinstance(i.op, Gather) and not (is_proved and i in self.loop.regions[0].instructions):
            return None
        known = [step for step in (self.step(v, depth) for v in i.operands) if step is not None]
        if len(known) < len(i.operands):
            return None
        if all(step == NO_STEP for step in known):
            return NO_STEP
        if i.result.type != ArrayType(I64):
            return None
        factors = frozenset[Value]().union(*(self.factors.get(self.root(v), frozenset()) for v in i.operands))
        if i.op.name == "add":
            total = known[0][0] + known[1][0], known[0][1] + known[1][1]
        elif i.op.name == "sub":
            total = known[0][0] - known[1][1], known[0][1] - known[1][0]
        elif i.op.name == "mul" and NO_STEP in known:
            fixed = known.index(NO_STEP)
            factor, step = self.root(i.operands[fixed]), known[1 - fixed]
            definition = self.definitions.get(factor)
            if definition is not None and isinstance(definition.op, Constant):
                size = abs(int(definition.params["value"]))
            else:
                size, factors = LONGEST_STEP, factors | {factor}
            total = -size * max(map(abs, step)), size * max(map(abs, step))
        else:
            return None
        if max(map(abs, total)) > LONGEST_STEP * (LONGEST_STEP if factors else 1):
            return None
        self.factors[i.result] = factors
        return total

    def accesses(self) -> Iterator[tuple[Instruction, int, Access]]:
        """Yield the reads and writes at indices that are not proved, each with the axis, and the index and the axis' extent."""
        for i in walk(self.loop.regions[0]):
            if isinstance(i.op, Gather | Scatter) and not isinstance(i.op, RollBy):
                for axis, index in zip(i.params["axes"], i.operands[1:], strict=False):
                    if axis not in proved_axes(i) and not index.type.shape:
                        yield i, axis, (self.root(index), i.operands[0].type.shape[axis])

    def checked(self, i: Instruction) -> Access | None:
        """Return the index that a check finds in range, and the extent of the axis."""
        test = self.definitions.get(i.operands[0]) if isinstance(i.op, Check) else None
        if test is None or test.op.name != "is_index":
            return None
        count = self.definitions.get(test.operands[1])
        if count is None or count.op.name != "count" or count.operands or len(count.params["shape"]) != 1:
            return None
        return self.root(test.operands[0]), count.params["shape"][0]

    def versions(self) -> list[Instruction]:
        """Return what replaces the loop."""
        proved = {access: None for _, _, access in self.accesses() if self.step(access[0]) is not None}
        checks = {i for i in walk(self.loop.regions[0]) if (access := self.checked(i)) is not None and access in proved}
        if not checks or len(proved) > MOST_ENDS:
            return [self.loop]
        b = Builder(self.loop.loc)
        test = self.tested(b, proved)
        loops = [self.region(self.loop.regions[0]), self.region(self.without(self.loop.regions[0], proved, checks))]
        index = b.cast(test, dtype=I64)
        operands = (index, *self.loop.operands)
        chosen = Instruction(switch, operands, self.loop.results, {}, tuple(loops), self.loop.loc)
        return [*b.instructions, chosen]

    def tested(self, b: Builder, proved: Mapping[Access, None]) -> Value:
        """Emit whether all indices are in range in the first and in the last iteration; false for a loop of no iterations, in
        which values of the body may not be defined."""
        length = self.loop.params["length"]
        count = b.count(shape=tuple(length)) if length else self.loop.operands[0]
        inner, outer = Builder(self.loop.loc), {count: Value(count.type, count.name)}
        last = inner.sub(outer[count], inner.const(1, I64))
        zero = inner.const(0, I64)
        counter = self.loop.regions[0].parameters[0]
        ends = [{counter: zero}, {counter: last}]
        longest = max(max(map(abs, self.step(index) or NO_STEP)) for index, _ in proved)
        test: Value = inner.lt(last, inner.const(FARTHEST // max(longest, LONGEST_STEP), I64))
        for factor in {f: None for index, _ in proved for f in self.factors.get(index, ())}:
            value = self.emitted(inner, factor, ends[0], outer)
            is_short = inner.ge(value, inner.const(-LONGEST_STEP, I64)), inner.le(value, inner.const(LONGEST_STEP, I64))
            test = inner.bitand(test, inner.bitand(*is_short))
        for index, extent in proved:
            size = inner.count(shape=(extent,))
            for env in ends[:1] if self.step(index) == NO_STEP else ends:
                value = self.emitted(inner, index, env, outer)
                test = inner.bitand(test, inner.bitand(inner.ge(value, zero), inner.lt(value, size)))
        none = Builder(self.loop.loc)
        yes = Block(tuple(outer.values()), tuple(inner.instructions), (test,))
        empty = none.const(False, BOOL)
        no = Block(tuple(Value(v.type, v.name) for v in outer), tuple(none.instructions), (empty,))
        is_some = b.cast(b.gt(count, b.const(0, I64)), dtype=I64)
        (result,) = b.emit(switch, (is_some, *outer), {}, (no, yes))
        return result

    def emitted(self, b: Builder, value: Value, env: dict[Value, Value], outer: dict[Value, Value]) -> Value:
        """Emit a scalar of the body outside it. ``env``: the values there of values of the body; ``outer``: those of values from
        outside the loop, to which this function adds."""
        value = self.root(value)
        if value in self.captures:
            operand = self.captures[value]
            return outer.setdefault(operand, Value(operand.type, operand.name))
        if value not in env:
            i = self.definitions[value]
            (env[value],) = replay(b, i, [self.emitted(b, v, env, outer) for v in i.operands])
        return env[value]

    def without(self, block: Block, proved: Mapping[Access, None], checks: set[Instruction]) -> Block:
        """Return a block without the checks, with the accesses proved."""
        instructions = []
        for i in block.instructions:
            if i in checks:
                continue
            params: Mapping[str, Any] = i.params
            inside = [axis for k, axis, access in self.accesses() if k is i and access in proved]
            if inside:
                params = {**params, "in_range": tuple(sorted({*inside, *proved_axes(i)}))}
            regions = tuple(self.without(region, proved, checks) for region in i.regions)
            instructions.append(replace(i, params=params, regions=regions))
        return replace(block, instructions=tuple(instructions))

    def region(self, body: Block) -> Block:
        """Return a region of the branch: the loop with this body."""
        operands = tuple(Value(v.type, v.name) for v in self.loop.operands)
        results = tuple(Value(v.type, v.name) for v in self.loop.results)
        loop = replace(self.loop, operands=operands, results=results, regions=(live(copy_block(body)),))
        return Block(operands, (loop,), results)
