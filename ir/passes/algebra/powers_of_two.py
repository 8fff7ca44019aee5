"""Rewrite quotients and remainders by constant powers of two.

    x / 8.0  ->  x * 0.125      of floats
    i // 8   ->  i >> 3         of integers
    i % 8    ->  i & 7

Each takes a fraction of a division's time. Templates hold such constants as parameters, so that no later pass knows them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import Op
from pullback.ir.core.structure import Block, Function, Instruction, walk, with_contents, with_regions
from pullback.ir.core.types import DType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import bitand, div, floordiv, mod, mul, shr
from pullback.ir.passes.editing.constants import constant_of

QUOTIENTS: dict[Op, Op] = {div: mul, floordiv: shr, mod: bitand}
"""The ops that divide, and what computes the same of a power of two."""


def powers_of_two(function: Function) -> Function:
    """Replace divisions by constant powers of two by products, shifts and masks.

    Requires: a func; other kinds are returned unchanged. Keeps: values bit by bit. Cost: linear; a function without such
    divisions is returned unchanged.
    """
    if function.kind != "func" or not any(i.op in QUOTIENTS for i in walk(function.body)):
        return function
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    b = Builder()
    definitions: dict[Value, Instruction] = {}
    replacements: dict[Value, Value] = {}
    for i in block.instructions:
        operands = tuple(replacements.get(v, v) for v in i.operands)
        right = _right_operand(i, definitions)
        if right is None:
            b.append(with_regions(i, map(_block, i.regions), operands))
        else:
            b.loc, b.hint = i.loc, i.result.name
            replacements[i.result] = b.emit(QUOTIENTS[i.op], (operands[0], b.full(right, i.operands[1].type)))[0]
        definitions.update((v, i) for v in i.results)
    return with_contents(block, b.instructions, [replacements.get(v, v) for v in block.results])


def _right_operand(i: Instruction, definitions: dict[Value, Instruction]) -> Any:
    """Return the constant with which the instruction that replaces a division computes; None if there is none."""
    if i.op not in QUOTIENTS:
        return None
    divisor, dtype = constant_of(i.operands[1], definitions), i.result.type.dtype
    if i.op is div:
        return exact_reciprocal(divisor, dtype) if dtype.is_float and type(divisor) is float else None
    if not dtype.is_integer or type(divisor) is not int or divisor <= 0 or divisor & (divisor - 1):
        return None
    return divisor.bit_length() - 1 if i.op is floordiv else divisor - 1


def exact_reciprocal(divisor: float, dtype: DType) -> float | None:
    """Return the reciprocal of a power of two if the dtype has it; None for other divisors.

    The quotient by the divisor and the product with the reciprocal are one number, which is rounded once.
    """
    if abs(math.frexp(divisor)[0]) != 0.5:
        return None
    reciprocal = 1 / divisor
    with np.errstate(over="ignore"):
        rounded = float(dtype.numpy.type(reciprocal))
    return reciprocal if math.isfinite(reciprocal) and rounded == reciprocal else None
