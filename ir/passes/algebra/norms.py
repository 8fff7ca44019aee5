"""Recognise norms: square roots of sums or means of squares, whose derivative at 0 is defined as 0.

A square is ``mul x, x``, a power with the constant exponent 2, or a contraction of a value with itself; for complex values, a
product with the conjugate. Sums, conversions, real parts and rearrangements of squares count as sums of squares, and so do
their multiples by factors that depend on no differentiated value: constants, counts of elements, data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, split
from pullback.ir.ops.array.reindex import Reindex

PASSED_ON = frozenset(("sum", "cast", "real", "squeeze", "broadcast", "transpose", "reshape"))
"""Ops that map a sum of squares to a sum of squares."""


def norms(function: Function) -> Function:
    """Set the param ``norm`` on each ``sqrt`` of a sum of squares.

    Requires: a func before ``grad`` (other kinds are returned unchanged); after ``simplify`` and ``cse`` it recognises more.
    Keeps: everything but that param.
    """
    return replace(function, body=_marked(function.body)) if function.kind == "func" else function


def _marked(block: Block, outer: frozenset[int] = frozenset()) -> Block:
    """Mark the norms in a block. ``outer``: positions of the parameters that depend on differentiated values."""
    active = {p for k, p in enumerate(block.parameters) if k in outer}
    constants: dict[Value, Any] = {}
    magnitudes: dict[Value, Value] = {}
    conjugates: dict[Value, Value] = {}
    squares: set[Value] = set()
    out: list[Instruction] = []
    for instruction in block.instructions:
        op, operands = instruction.op, instruction.operands
        if any(v in active for v in operands):
            active.update(v for v in instruction.results if isinstance(v.type, ArrayType) and v.type.dtype.is_inexact)
        if instruction.regions:
            wrt = instruction.params.get("wrt", ())
            reached = frozenset(k for k, v in enumerate(operands) if v in active or k in wrt)
            instruction = replace(instruction, regions=tuple(_marked(region, reached) for region in instruction.regions))
        elif op.name == "const":
            constants[instruction.result] = instruction.params["value"]
        elif isinstance(op, Reindex) and len(operands) == 1 and operands[0] in constants:
            constants[instruction.result] = constants[operands[0]]
        elif op.name == "abs":
            magnitudes[instruction.result] = operands[0]
        elif op.name == "conj":
            conjugates[instruction.result] = operands[0]
        elif op.name == "sqrt" and operands[0] in squares:
            instruction = replace(instruction, params={**instruction.params, "norm": True})
        elif _is_square(instruction, constants, magnitudes, conjugates) or _is_sum(instruction, constants, active, squares):
            squares.add(instruction.result)
        out.append(instruction)
    return replace(block, instructions=tuple(out))


def _is_square(
    instruction: Instruction, constants: dict[Value, Any], magnitudes: dict[Value, Value], conjugates: dict[Value, Value]
) -> bool:
    """Return whether an instruction is x * x, x ** 2, or a contraction of x with itself; |x| is treated as x."""
    op, operands = instruction.op, [magnitudes.get(v, v) for v in instruction.operands]
    if op is OPS["pow"]:
        return bool(constants.get(operands[1]) == 2) and not instruction.result.type.dtype.is_complex
    if op is OPS["mul"]:
        same = True
    elif isinstance(op, Contract):
        (left, right), _ = split(instruction.params["spec"])
        same = left == right
    else:
        return False
    x, y = operands
    if instruction.result.type.dtype.is_complex:
        return same and (conjugates.get(x) is y or conjugates.get(y) is x)
    return same and x is y


def _is_sum(instruction: Instruction, constants: dict[Value, Any], active: set[Value], squares: set[Value]) -> bool:
    """Return whether an instruction is a sum, a multiple by a constant factor, or a rearrangement of sums of squares."""
    name, operands = instruction.op.name, instruction.operands
    if name in PASSED_ON:
        return operands[0] in squares
    if name == "select":
        chosen = operands[1:]
        return any(v in squares for v in chosen) and all(v in squares or v in constants for v in chosen)
    if name == "add":
        return any(v in squares for v in operands) and all(v in squares or constants.get(v) == 0 for v in operands)
    if name == "div":
        return operands[0] in squares and operands[1] not in active
    if name == "mul":
        x, y = operands
        return (x in squares and y not in active) or (y in squares and x not in active)
    return False
