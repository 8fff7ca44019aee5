"""Rewrite an even power of a root as a power of the root's argument.

    sqrt(u) ** 2   ->  u                      if u is known not to be negative; else u < 0 ? sqrt(u) : u
    (sqrt(u) / s) ** 4   ->  (u / s / s) ** 2
    hypot(x, y) ** 2, abs(x + iy) ** 2   ->  x * x + y * y

So half a squared distance has the derivatives of a sum of squares at 0, without the derivatives of the root, which are 0 there
by convention. Values change by rounding only, and overflow or underflow as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, split
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.control.regions import Transform
from pullback.ir.ops.elementwise.elementwise import div, mul
from pullback.ir.passes.editing.replay import replay
from pullback.ir.passes.singular.signs import Sign, Signs

DEEPEST = 8
"""Largest number of factors and rearrangements between a power and its root."""

ROOTS = frozenset(("sqrt", "hypot", "abs"))
"""Names of ops that count as roots."""


def even_powers(function: Function) -> Function:
    """Rewrite even powers of roots in regions of transforms.

    Requires: a func before ``grad`` (other kinds are returned unchanged). Keeps: values up to rounding.
    """
    if function.kind != "func" or not any(isinstance(i.op, Transform) for i in walk(function.body)):
        return function
    body = _outside(function.body)
    return function if body is function.body else replace(function, body=body)


def _outside(block: Block) -> Block:
    """Rewrite the regions of transforms in a block that is not differentiated itself."""
    signs = Signs(block.parameters)
    out = []
    for i in block.instructions:
        if i.regions:
            is_inside = isinstance(i.op, Transform)
            regions = tuple(_inside(r, signs.region_signs(i, r)) if is_inside else _outside(r) for r in i.regions)
            if any(new is not old for new, old in zip(regions, i.regions, strict=True)):
                i = replace(i, regions=regions)
        signs.note(i)
        out.append(i)
    is_same = all(new is old for new, old in zip(out, block.instructions, strict=True))
    return block if is_same else replace(block, instructions=tuple(out))


def _inside(block: Block, parameter_signs: Sequence[Sign]) -> Block:
    """Rewrite a differentiated block and its regions. ``parameter_signs``: what is known of the signs of its parameters."""
    if not any(i.op.name in ROOTS for i in walk(block)):
        return block
    work = _Squares(block, parameter_signs)
    return work.result() if work.is_changed else block


class _Squares:
    """Rewrites one block."""

    def __init__(self, block: Block, parameter_signs: Sequence[Sign]) -> None:
        self.block, self.signs, self.b = block, Signs(block.parameters, parameter_signs), Builder()
        self.new: dict[Value, Value] = {}
        self.read = 0
        self.is_changed = False
        for i in block.instructions:
            self._add(i)

    def result(self) -> Block:
        return self.b.block(self.block.parameters, [self.new.get(v, v) for v in self.block.results])

    def _add(self, i: Instruction) -> None:
        operands = tuple(self.new.get(v, v) for v in i.operands)
        regions = tuple(_inside(region, self.signs.region_signs(i, region)) for region in i.regions)
        if any(new is not old for new, old in zip(regions, i.regions, strict=True)):
            self.is_changed = True
            i = replace(i, regions=regions)
        self._note()
        replacement = self._power(self.b.at(i.loc, i.results[0].name if i.results else ""), i, operands)
        if replacement is not None:
            self.is_changed = True
            self.new[i.result] = replacement
        elif operands == i.operands:
            self.b.append(i)
        else:
            self.new.update(zip(i.results, replay(self.b, i, operands), strict=True))

    def _note(self) -> None:
        for i in self.b.instructions[self.read :]:
            self.signs.note(i)
        self.read = len(self.b.instructions)

    def _power(self, b: Builder, i: Instruction, operands: Sequence[Value]) -> Value | None:
        """Return the replacement of an instruction that is an even power of a root; else None."""
        if i.op is mul and i.result.type.dtype.is_float:
            x, y = operands
            if x is y:
                return self._square(b, x)
            for factor, other in ((x, y), (y, x)):
                maker = b.maker(factor)
                if maker is not None and maker.op is mul and other in maker.operands:
                    cofactor = maker.operands[1 - maker.operands.index(other)]
                    square = self._square(b, other)
                    if square is not None:
                        return b.mul(cofactor, square)
        if i.op.name == "pow" and i.result.type.dtype.is_float:
            exponent = self.signs.constants.get(operands[1])
            if isinstance(exponent, int | float) and exponent >= 2 and exponent % 2 == 0:
                square = self._square(b, operands[0])
                return square if square is None or exponent == 2 else b.pow(square, b.full(exponent / 2, square.type))
        if isinstance(i.op, Contract) and operands[0] is operands[1] and i.result.type.dtype.is_float:
            (left, right), out = split(i.params["spec"])
            if left == right and not out:
                square = self._square(b, operands[0])
                return None if square is None or not left else b.sum(square, axes=tuple(range(len(left))))
        return None

    def _square(self, b: Builder, v: Value) -> Value | None:
        """Return the square of a value that is a root up to factors; None if it is not known to be one."""
        steps: list[tuple[Instruction, int]] = []
        root = self._root(b, v, steps, DEEPEST)
        if root is None:
            return None
        if root.op.name == "sqrt":
            (u,) = root.operands
            inside = u if self.signs.of(u) else b.select(b.lt(u, b.zeros_like(u)), root.result, u)
            return self._along(b, inside, steps, 2)
        if root.op.name == "hypot":
            parts = list(root.operands)
        else:
            parts = [b.real(root.operands[0]), b.imag(root.operands[0])]
        x, y = (self._along(b, part, steps, 1) for part in parts)
        square: Value = b.add(b.mul(x, x), b.mul(y, y))
        return square

    def _root(self, b: Builder, v: Value, steps: list[tuple[Instruction, int]], depth: int) -> Instruction | None:
        """Return the root that a value is up to ``steps``: instructions from the value to the root, with the position of the
        operand."""
        maker = b.maker(v)
        if maker is None or not depth:
            return None
        name = maker.op.name
        if name == "sqrt":
            return maker if maker.result.type.dtype.is_float else None
        if name == "hypot" or (name == "abs" and maker.operands[0].type.dtype.is_complex):
            return maker
        if maker.op in (mul, div) and maker.operands[0] is not maker.operands[1]:
            positions = (0, 1) if maker.op is mul else (0,)
        elif name == "neg" or (isinstance(maker.op, Reindex) and len(maker.operands) == 1):
            positions = (0,)
        else:
            return None
        for position in positions:
            steps.append((maker, position))
            root = self._root(b, maker.operands[position], steps, depth - 1)
            if root is not None:
                return root
            steps.pop()
        return None

    def _along(self, b: Builder, x: Value, steps: Sequence[tuple[Instruction, int]], times: int) -> Value:
        """Apply the steps from a root to another value: factors are applied ``times``, one after another, so that no square of
        a factor overflows."""
        for step, position in reversed(steps):
            if step.op in (mul, div):
                for _ in range(times):
                    x = b.emit(step.op, (x, step.operands[1 - position]))[0]
            elif step.op.name != "neg":
                x = b.emit(step.op, (x,), dict(step.params))[0]
        return x
