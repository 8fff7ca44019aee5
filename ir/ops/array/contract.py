"""Contractions of two operands: sums of products over shared axes, written as einsum subscripts ("ij,jk->ik").

No letter repeats within an operand; each letter of an operand is in the other operand or in the result. The gradient of a
contraction is therefore a contraction of the same kind, at any order.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Region, Same
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import ArrayType, Extent, Type
from pullback.ir.core.value import Value


class Contract(Op):
    """A contraction. Param ``spec``: the subscripts. ``tf32``: elements of f32 may be rounded to 11 bits before they are
    multiplied. ``conj``: whether each of two complex operands is conjugated first; it is set only after gradients are
    taken."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        letters, out = split(params["spec"])
        arrays = [t for t in types if isinstance(t, ArrayType)]
        if len(arrays) != 2 or len(types) != 2:
            raise TypeError("takes two arrays")
        if arrays[0].dtype is not arrays[1].dtype or arrays[0].dtype.kind not in "ifuc":
            raise TypeError("operands must have one numeric dtype")
        extents: dict[str, Extent] = {}
        for subscripts, t in zip(letters, arrays, strict=True):
            if len(subscripts) != t.rank or len(set(subscripts)) != len(subscripts):
                raise TypeError(f"subscripts {subscripts!r} do not fit {t}")
            for letter, extent in zip(subscripts, t.shape, strict=True):
                same(extents.setdefault(letter, extent), extent)
        lone = set(letters[0]) ^ set(letters[1])
        if not lone <= set(out) or not set(out) <= set(extents) or len(set(out)) != len(out):
            raise TypeError(f"subscripts {params['spec']!r} sum an axis of one operand alone")
        return (ArrayType(arrays[0].dtype, tuple(extents[k] for k in out)),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            conj = params.get("conj", (False, False))
            operands = [np.conj(x) if is_conj else x for x, is_conj in zip(operands, conj, strict=True)]
            return (np.einsum(params["spec"], *operands, optimize=operands[0].dtype.kind in "fc"),)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Any) -> tuple[Value, ...]:
        inputs, out = split(params["spec"])
        letter = next(c for c in string.ascii_letters if c not in params["spec"])
        left, right = (letter + subscripts if axis else subscripts for subscripts, axis in zip(inputs, batched, strict=True))
        return (b.contract(*operands, spec=f"{left},{right}->{letter}{out}", **others(params)),)


def split(spec: str) -> tuple[tuple[str, str], str]:
    """Return the subscripts of the operands and of the result."""
    inputs, _, out = spec.partition("->")
    left, _, right = inputs.partition(",")
    return (left, right), out


def is_matrix_product(instruction: Instruction) -> bool:
    """Return whether a contraction has rows, columns and a summed axis whose extents are not all the constant 1."""
    (left, right), out = split(instruction.params["spec"])
    shapes = [v.type.shape for v in instruction.operands]
    long = {k for word, shape in zip((left, right), shapes, strict=True) for k, e in zip(word, shape, strict=True) if e != 1}
    rows, columns, summed = set(out) - set(right), set(out) - set(left), set(left) - set(out)
    return all(not long.isdisjoint(each) for each in (rows, columns, summed))


def others(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params that are passed on to contractions derived from this one: all but the subscripts."""
    return {name: params[name] for name in ("tf32", "conj") if name in params}


def _rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (left, right), out = split(params["spec"])
    x, y = inputs
    return [
        b.contract(cts[0], y, spec=f"{out},{right}->{left}", **others(params)) if wants[0] else ZERO,
        b.contract(cts[0], x, spec=f"{out},{left}->{right}", **others(params)) if wants[1] else ZERO,
    ]


contract = Contract(name="contract", pullback=_rule)
