"""contractions: every ``contract`` becomes a matrix product in canonical form, or elementwise ops and a sum.

Requires: an optimised func. Keeps: all other instructions.

A contraction with rows, columns and a summed axis, of float32 or float64, becomes "zmk,zkn->zmn" with any of its operands stored
transposed (no z if there is no batch axis): a library call, or a kernel with its neighbours (``carrying``). Every other one,
matrix-vector products included and products of one term, becomes broadcasts, a product and a sum, which fuse with neighbours.
Each one of 16-bit floats that sums is one of float32 between casts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.codegen.recipes import HALF
from pullback.ir.builder import Builder
from pullback.ir.extents import product
from pullback.ir.ops.contract import Contract, others, split
from pullback.ir.ops.reindex import Reindex
from pullback.ir.passes.cse import key
from pullback.ir.passes.replay import New, replaced
from pullback.ir.structure import Block, Function, Instruction, Value
from pullback.ir.types import F32, F64, Extent


def contractions(function: Function) -> Function:
    """The function with canonical contractions, whose operands are rearranged once for all that want them so."""

    def made(b: Builder, i: Instruction, new: New) -> list[Value]:
        x, y = map(new, i.operands)
        return [_canonical(b, x, y, i.params["spec"], others(i.params))]

    found = replaced(function, lambda i: isinstance(i.op, Contract), made)
    return function if found is function else _rearranged_once(found)


def _rearranged_once(function: Function) -> Function:
    """The function with one of equal rearrangements. Other instructions that are equal are so on purpose."""
    first: dict[Value, Value] = {}
    known: dict[tuple[Any, ...], Value] = {}
    kept: list[Instruction] = []
    for i in function.instructions:
        operands = tuple(first.get(v, v) for v in i.operands)
        if isinstance(i.op, Reindex):
            earlier = known.setdefault(key(i.op, operands, i.params), i.result)
            if earlier is not i.result:
                first[i.result] = earlier
                continue
        kept.append(i if operands == i.operands else replace(i, operands=operands))
    results = tuple(first.get(v, v) for v in function.results)
    return replace(function, body=Block(function.parameters, tuple(kept), results))


@dataclass(frozen=True, eq=False)
class _Letters:
    left: str
    right: str
    out: str
    batch: str
    rows: str
    columns: str
    summed: str


def _letters(spec: str) -> _Letters:
    (left, right), out = split(spec)
    batch = "".join(k for k in out if k in left and k in right)
    rows = "".join(k for k in out if k in left and k not in right)
    columns = "".join(k for k in out if k in right and k not in left)
    summed = "".join(k for k in left if k not in out)
    return _Letters(left, right, out, batch, rows, columns, summed)


def _canonical(b: Builder, x: Value, y: Value, spec: str, params: dict[str, Any]) -> Value:
    p = _letters(spec)
    ones = [k for k in p.summed if 1 in (x.type.shape[p.left.index(k)], y.type.shape[p.right.index(k)])]
    if ones:
        x, y = (b.squeeze(v, axes=tuple(sorted(word.index(k) for k in ones))) for v, word in ((x, p.left), (y, p.right)))
        return _canonical(b, x, y, "".join(k for k in spec if k not in ones), params)
    if p.summed and x.type.dtype in HALF:
        wide = _canonical(b, b.cast(x, dtype=F32), b.cast(y, dtype=F32), spec, params)
        return b.cast(wide, dtype=x.type.dtype)
    if p.rows and p.columns and p.summed and x.type.dtype in (F32, F64):
        if p.out.find(p.columns[0]) < p.out.find(p.rows[0]):
            return _matrix_product(b, y, x, _letters(f"{p.right},{p.left}->{p.out}"), params)
        return _matrix_product(b, x, y, p, params)
    return _spelled_out(b, x, y, p)


def _spelled_out(b: Builder, x: Value, y: Value, p: _Letters) -> Value:
    """The sum of the product over all axes at once, in the order of the larger operand."""
    if not p.rows or not p.columns:
        space = p.left if len(p.left) >= len(p.right) else p.right
    else:
        space = p.out + p.summed
    extents = dict(zip(p.left + p.right, x.type.shape + y.type.shape, strict=True))
    whole = b.mul(_spread(b, x, p.left, space, extents), _spread(b, y, p.right, space, extents))
    axes = tuple(k for k, letter in enumerate(space) if letter in p.summed)
    total = b.sum(whole, axes=axes) if axes else whole
    kept = "".join(letter for letter in space if letter not in p.summed)
    return _permuted(b, total, kept, p.out)


def _spread(b: Builder, x: Value, letters: str, space: str, extents: dict[str, Extent]) -> Value:
    ordered = "".join(k for k in space if k in letters)
    x = _permuted(b, x, letters, ordered)
    axes = tuple(k for k, letter in enumerate(space) if letter not in letters)
    found: Value = b.broadcast(x, axes=axes, shape=tuple(extents[k] for k in space)) if axes else x
    return found


def _permuted(b: Builder, x: Value, letters: str, wanted: str) -> Value:
    if letters == wanted:
        return x
    found: Value = b.transpose(x, perm=tuple(letters.index(k) for k in wanted))
    return found


def _matrix_product(b: Builder, x: Value, y: Value, p: _Letters, params: dict[str, Any]) -> Value:
    extents = dict(zip(p.left + p.right, x.type.shape + y.type.shape, strict=True))
    x, left = _operand(b, x, p.left, (p.batch, p.rows, p.summed), extents, "zmk")
    y, right = _operand(b, y, p.right, (p.batch, p.summed, p.columns), extents, "zkn")
    z = "z" if p.batch else ""
    flat: Value = b.contract(x, y, spec=f"{left},{right}->{z}mn", **params)
    order = p.batch + p.rows + p.columns
    shaped = b.reshape(flat, shape=tuple(extents[k] for k in order)) if len(order) != len(z) + 2 else flat
    return _permuted(b, shaped, order, p.out)


def _operand(
    b: Builder, x: Value, letters: str, parts: Sequence[str], extents: dict[str, Extent], names: str
) -> tuple[Value, str]:
    """An operand as batch, and its two matrix axes in the order it is stored in, each part one axis; and its subscripts."""
    batch, first, second = parts
    straight, crossed = batch + first + second, batch + second + first
    is_crossed = letters == crossed
    order = crossed if is_crossed else straight
    x = _permuted(b, x, letters, order)
    merged = [part for part in ((batch, second, first) if is_crossed else (batch, first, second)) if part]
    if any(len(part) > 1 for part in merged):
        x = b.reshape(x, shape=tuple(product([extents[k] for k in part]) for part in merged))
    matrix = names[2] + names[1] if is_crossed else names[1:]
    return x, names[0] * bool(batch) + matrix
