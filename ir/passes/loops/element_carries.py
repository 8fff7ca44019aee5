"""element_carries: carry one element in the place of an array of which a loop reads and writes that element alone.

    %y: f64[m] = scan %n, %y0, %i (%k, %y1, %i0) {                     %e0: f64[] = gather %y0, %i {axes=[0], in_range=[0]}
      %e: f64[] = gather %y1, %i0 {axes=[0], in_range=[0]}             %e: f64[] = scan %n, %e0 (%k, %e1) {
      ...                                                                ...
      %s: f64[] = add %e, %v                                    ->       %s: f64[] = add %e1, %v
      %y2: f64[m] = scatter_set %y1, %i0, %s {...}                       yield %s
      yield %y2                                                        }
    }                                                                  %y: f64[m] = scatter_set %y0, %i, %e {...}

The element stays in a register from one iteration to the next. Its index is the same in all iterations and proved to be in range.
After no iteration the element is written with the value that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Count
from pullback.ir.ops.array.index import gather, scatter_add, scatter_set
from pullback.ir.ops.control.loops import Loop
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.editing.each_of_op import each_of_op
from pullback.ir.passes.editing.loop_editor import Carry, Draft, draft_of
from pullback.ir.passes.editing.replay import replay

DEEPEST = 6
"""Largest number of instructions from a value outside a loop to an index that is computed from it again before the loop."""


def element_carries(function: Function) -> Function:
    """Carry such elements.

    Requires: a func. Keeps: values bit by bit, and the order of what can fail.
    """
    return each_of_op(function, Loop, _rewritten)


def _rewritten(i: Instruction) -> list[Instruction]:
    """Return what replaces a loop."""
    draft = draft_of(i)
    definitions = {v: k for k in draft.bodies[-1] for v in k.results}
    before, after = Builder(i.loc), Builder(i.loc)
    outside = {c.parameters[-1]: c.operand for c in draft.captures}
    for position, carry in enumerate(draft.carries):
        element = _Element(draft, carry, definitions)
        if isinstance(carry.operand.type, ArrayType) and carry.operand.type.shape and element.is_alone():
            draft.carries[position] = element.carried(before, after, outside)
    if not after.instructions:
        return [i]
    return [*before.instructions, draft.done(), *after.instructions]


@dataclass(eq=False)
class _Element:
    """The element of a carried array. ``access``: one of the instructions that read or write it; ``used``: all of them, in
    order."""

    draft: Draft
    carry: Carry
    definitions: Mapping[Value, Instruction]
    used: list[Instruction] = field(default_factory=list)

    @property
    def access(self) -> Instruction:
        return self.used[0]

    @property
    def indices(self) -> Sequence[Value]:
        """The index along each of the axes of an access."""
        return self.access.operands[1 : 1 + len(self.access.params["axes"])]

    def is_alone(self) -> bool:
        """Return whether a body uses no other part of the array, and writes it."""
        version, draft = self.carry.parameters[-1], self.draft
        versions = {version}
        for i in draft.bodies[-1]:
            if versions.isdisjoint(i.operands):
                continue
            if i.op not in (gather, scatter_set, scatter_add) or i.operands[0] is not version or version in i.operands[1:]:
                return False
            self.used.append(i)
            if not self.is_same(i):
                return False
            if i.op is not gather:
                (version,) = i.results
                versions.add(version)
        others = [c.following for c in draft.carries if c is not self.carry] + [v for g in draft.outputs for v in g.values]
        is_read_by_test = len(draft.bodies) > 1 and self.carry.parameters[0] in draft.reads(0)
        is_last = self.carry.following is version and len(versions) > 1
        return is_last and versions.isdisjoint(others) and not is_read_by_test and all(map(self.is_fixed, self.indices))

    def is_same(self, i: Instruction) -> bool:
        """Return whether an access is to the one element of the first one, at an index in range."""
        rank = len(i.operands[0].type.shape)
        axes = tuple(i.params["axes"])
        is_element = sorted(axes) == list(range(rank)) == sorted(i.params.get("in_range", ()))
        indices = i.operands[1 : 1 + rank]
        is_scalar = all(isinstance(v.type, ArrayType) and not v.type.shape for v in indices)
        first = self.access
        return is_element and is_scalar and axes == tuple(first.params["axes"]) and indices == first.operands[1 : 1 + rank]

    def is_fixed(self, value: Value, depth: int = 0) -> bool:
        """Return whether a scalar is computed from values from outside the loop by cheap operations."""
        if any(value is c.parameters[-1] for c in self.draft.captures):
            return True
        i = self.definitions.get(value)
        if i is None or depth > DEEPEST or not is_pure(i) or not isinstance(i.op, Elementwise | Constant | Count):
            return False
        return all(self.is_fixed(v, depth + 1) for v in i.operands)

    def emitted(self, b: Builder, value: Value, outside: dict[Value, Value]) -> Value:
        """Emit a fixed value before the loop. ``outside``: the values there of values of the body, to which it is added."""
        if value not in outside:
            i = self.definitions[value]
            (outside[value],) = replay(b, i, [self.emitted(b, v, outside) for v in i.operands])
        return outside[value]

    def carried(self, before: Builder, after: Builder, outside: dict[Value, Value]) -> Carry:
        """Return the carry of the element: it is read before the loop, and written after it."""
        carry, params = self.carry, {k: self.access.params[k] for k in ("axes", "in_range")}
        indices = [self.emitted(before, v, outside) for v in self.indices]
        scalar = ArrayType(carry.operand.type.dtype)
        first = before.gather(carry.operand, *indices, **params)
        parameters = [Value(scalar, p.name) for p in carry.parameters]
        last = self.replace_accesses(parameters[-1])
        result = Value(scalar, carry.result.name)
        operands = (carry.operand, *indices, result)
        after.append(Instruction(scatter_set, operands, (carry.result,), params, (), self.access.loc))
        return Carry(first, parameters, last, result)

    def replace_accesses(self, element: Value) -> Value:
        """Replace the reads and writes of the body by the element; return its value at the end of an iteration."""
        names: dict[Value, Value] = {}
        body: list[Instruction] = []
        for i in self.draft.bodies[-1]:
            new = replace(i, operands=tuple(names.get(v, v) for v in i.operands)) if i not in self.used else i
            if i not in self.used:
                body.append(new)
            elif i.op is gather:
                names[i.result] = element
            elif i.op is scatter_set:
                element = names.get(i.operands[-1], i.operands[-1])
            else:
                b = Builder(i.loc, body)
                element = b.add(element, names.get(i.operands[-1], i.operands[-1]))
        self.draft.bodies[-1] = body
        self.draft.substitute(len(self.draft.bodies) - 1, names)
        return names.get(element, element)
