"""Replace sums along the columns of a square matrix by sums along its rows, if its transpose is computed already.

    d = x[:, None] - x[None, :]; g = d * exp(-d * d)     transposed, g is -g: sum g {axes=[0]} is -(sum g {axes=[1]})

Pairwise interactions of points have this form. Afterwards each row is independent: no sum is accumulated across rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant, Iota
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.cse import key
from pullback.ir.passes.editing.replay import replay
from pullback.ir.text import print_literal

SWAPPED = {"gt": "lt", "ge": "le"}
"""Comparisons with swapped operands."""

Form = tuple[int, int]
"""A sign and the index of an expression. Equal forms are equal values, except for the sign of zero and of NaN."""


def mirrors(function: Function) -> Function:
    """Replace reductions along the first of two equal axes by reductions along the second, of the transposed value.

    Requires: a func; other kinds are returned unchanged. Keeps: values, up to the order of additions and the sign of a sum
    that is zero.
    """
    return replace(function, body=_mirrored(function.body)) if function.kind == "func" else function


def _mirrored(block: Block) -> Block:
    instructions = [replace(i, regions=tuple(map(_mirrored, i.regions))) if i.regions else i for i in block.instructions]
    if any(map(_is_column, instructions)):
        instructions = _reduced_by_rows(instructions)
    return block if instructions == list(block.instructions) else Block(block.parameters, tuple(instructions), block.results)


def _is_column(i: Instruction) -> bool:
    if not isinstance(i.op, Reduce) or i.op.gives_position or tuple(i.params["axes"]) != (0,):
        return False
    return _is_square(i.operands[0])


def _is_square(value: Value) -> bool:
    shape = value.type.shape
    return len(shape) == 2 and shape[0] == shape[1]


def _reduced_by_rows(instructions: list[Instruction]) -> list[Instruction]:
    """Return the instructions, with column reductions replaced by row reductions of an earlier value if there is one."""
    forms = Forms()
    summed = {i.operands[0] for i in instructions if isinstance(i.op, Reduce) and tuple(i.params["axes"]) == (1,)}
    by_form: dict[int, Value] = {}
    b = Builder()
    new: dict[Value, Value] = {}
    reduced: dict[tuple[Any, ...], tuple[Value, ...]] = {}
    for i in instructions:
        results, operands = None, [new.get(v, v) for v in i.operands]
        if _is_column(i) and (image := forms.image(i.operands[0])) is not None and image[1] in by_form:
            source = by_form[image[1]]
            sign = image[0] * forms.form(source)[0]
            results = _reduced(b.at(i.loc, i.result.name), i, new.get(source, source), sign, reduced)
        if results is None and isinstance(i.op, Reduce):
            results = reduced.get(key(i.op, operands, i.params))
        if results is None:
            results = replay(b, i, operands)
        new.update(zip(i.results, results, strict=True))
        forms.note(i)
        if i.results and (form := forms.known.get(i.results[0])) is not None:
            if form[1] not in by_form or i.results[0] in summed:
                by_form[form[1]] = i.results[0]
    return _renamed(instructions, b.instructions, new)


def _renamed(before: list[Instruction], after: list[Instruction], new: dict[Value, Value]) -> list[Instruction]:
    """Return ``after`` with the result values of ``before`` where the instruction is still there."""
    old = {v: k for k, v in new.items()}
    return [
        replace(i, operands=tuple(old.get(v, v) for v in i.operands), results=tuple(old.get(v, v) for v in i.results))
        for i in after
    ]


def _reduced(
    b: Any, i: Instruction, source: Value, sign: int, reduced: dict[tuple[Any, ...], tuple[Value, ...]]
) -> tuple[Value, ...] | None:
    """Emit a reduction along the rows of ``source``, or return an equal one from ``reduced``. None if ``sign`` is negative and
    the reduction is not a sum."""
    assert isinstance(i.op, Reduce)
    if sign < 0 and i.op.combine != "add":
        return None
    params = {**i.params, "axes": (1,)}
    same = key(i.op, (source,), params)
    if same not in reduced:
        reduced[same] = b.emit(i.op, (source,), params)
    (result,) = reduced[same]
    return (result if sign > 0 else b.sub(b.zeros_like(result), result),)


class Forms:
    """The forms of square values: ``known`` by value; ``images``: the form of the transpose; ``sure``: the values whose zeros
    have the sign of the form. Division by other values is not followed: the signs of infinities would be wrong."""

    def __init__(self) -> None:
        self.known: dict[Value, Form] = {}
        self.images: dict[Value, Form] = {}
        self.ordinals: dict[Any, int] = {}
        self.sure: set[Value] = set()
        self.zeros: set[Value] = set()
        self.nothing: set[int] = set()

    def form(self, value: Value) -> Form:
        return self.known[value]

    def image(self, value: Value) -> Form | None:
        return self.images.get(value)

    def note(self, i: Instruction) -> None:
        """Record the form of an instruction's result."""
        if isinstance(i.op, Constant) and i.params["value"] == 0:
            self.zeros.add(i.result)
        if len(i.results) != 1 or not _is_square(i.result):
            return
        value = i.result
        if i.op is broadcast and i.operands[0].type.rank < 2:
            axes, source = tuple(i.params["axes"]), i.operands[0]
            swapped = axes if len(axes) == 2 else (1 - axes[0],)
            self.sure.add(value)
            self.known[value] = 1, self.ordinal("broadcast", source, axes)
            self.images[value] = 1, self.ordinal("broadcast", source, swapped)
            if source in self.zeros:
                self.nothing.add(self.known[value][1])
        elif isinstance(i.op, Iota):
            axis, dtype = i.params["axis"], i.params["dtype"]
            self.sure.add(value)
            self.known[value] = 1, self.ordinal("iota", axis, dtype)
            self.images[value] = 1, self.ordinal("iota", 1 - axis, dtype)
        elif isinstance(i.op, Elementwise) and all(v in self.known for v in i.operands):
            if i.op.name == "div" and i.operands[1] not in self.sure:
                return
            self.known[value] = self.elementwise_form(i, [self.known[v] for v in i.operands])
            self.images[value] = self.elementwise_form(i, [self.images[v] for v in i.operands])
            is_plain = self.known[value][0] > 0 < self.images[value][0] and self.sure.issuperset(i.operands)
            if is_plain or i.op.parity == "even" or (i.op.name == "mul" and i.operands[0] is i.operands[1]):
                self.sure.add(value)

    def ordinal(self, *parts: Any) -> int:
        """Return the index of an expression."""
        return self.ordinals.setdefault(parts, len(self.ordinals))

    def elementwise_form(self, i: Instruction, forms: list[Form]) -> Form:
        """Return the form of an elementwise op of forms, with the sign moved out where the op allows it."""
        assert isinstance(i.op, Elementwise)
        name, sign, parity = i.op.name, 1, i.op.parity
        literals = tuple((k, print_literal(i.params[k])) for k in sorted(i.params))
        if name == "neg":
            return -forms[0][0], forms[0][1]
        if name in SWAPPED:
            name, forms = SWAPPED[name], forms[::-1]
        if name == "sub":
            name, forms = "add", [forms[0], (-forms[1][0], forms[1][1])]
        if OPS[name].commutative:
            forms = sorted(forms, key=lambda f: (f[1], f[0]))
        if name in ("mul", "div"):
            sign, forms = forms[0][0] * forms[1][0], [(1, index) for _, index in forms]
        elif parity == "even" or (parity == "odd" and i.operands[0].type.dtype.is_float):
            sign, forms = 1 if parity == "even" else forms[0][0], [(1, forms[0][1])]
        elif name == "select":
            sign, (x, y) = self.joint_sign(*forms[1:])
            forms = [forms[0], x, y]
        elif name == "add" and forms[0][0] < 0:
            sign, forms = -1, [(-s, index) for s, index in forms]
        return sign, self.ordinal(name, tuple(forms), literals)

    def joint_sign(self, x: Form, y: Form) -> tuple[int, tuple[Form, Form]]:
        """Return the common sign of two alternatives, and their forms without it; a zero matches any sign."""
        x, y = ((y[0], x[1]) if x[1] in self.nothing else x), ((x[0], y[1]) if y[1] in self.nothing else y)
        return (x[0], ((1, x[1]), (1, y[1]))) if x[0] == y[0] else (1, (x, y))
