"""contractions: every ``contract`` becomes a matrix product in canonical form, or elementwise ops and a sum.

Requires: an optimised func. Keeps: all other instructions.

A contraction with rows, columns and a summed axis, of float32 or float64, on the CPU of complex numbers, too, becomes
"zmk,zkn->zmn" with any of its operands stored transposed (no z if there is no batch axis): a library call, or a kernel with its
neighbours (``carrying``). On the CPU z may be anywhere but last, and missing in one operand (``product_layouts``): such a batch
is a kernel of our own (``product_batch``).
Every other one, matrix-vector products included and products of one term, becomes broadcasts, a product and a sum, which fuse
with their neighbours. Each one of 16-bit floats that sums is one of float32 between casts. Axes known to have
one element are no axes: a product of one row or one column is one of a matrix and a vector.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.codegen.fuse.rewrites.contraction_layouts import Layout, layout
from pullback.codegen.math.recipes import HALF
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import F32, F64, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, others, split
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.passes.editing.cse import key
from pullback.ir.passes.editing.replay import New, replaced
from pullback.ir.shapes.extents import product

SHORT = 16
"""The extent of a short axis, if it is a number."""


def contractions(function: Function, target: str) -> Function:
    """The function with canonical contractions, whose operands are rearranged once for all that want them so."""

    def made(b: Builder, i: Instruction, new: New) -> list[Value]:
        x, y = map(new, i.operands)
        return [_canonical(b, x, y, i.params["spec"], others(i.params), target)]

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


def _canonical(b: Builder, x: Value, y: Value, spec: str, params: dict[str, Any], target: str) -> Value:
    p = _letters(spec)
    ones = {k for v, word in ((x, p.left), (y, p.right)) for e, k in zip(v.type.shape, word, strict=True) if e == 1}
    if ones:
        x, y = (_without(b, v, word, ones) for v, word in ((x, p.left), (y, p.right)))
        found = _canonical(b, x, y, "".join(k for k in spec if k not in ones), params, target)
        if p.summed and ones.issuperset(p.summed) and not found.type.dtype.is_complex:
            found = b.add(found, b.zeros_like(found))  # a sum begins with 0: of -0 alone it is 0
        axes = tuple(axis for axis, k in enumerate(p.out) if k in ones)
        shape = iter(found.type.shape)
        whole = tuple(1 if k in ones else next(shape) for k in p.out)
        return b.reshape(found, shape=whole) if axes else found
    if p.summed and x.type.dtype in HALF:
        wide = _canonical(b, b.cast(x, dtype=F32), b.cast(y, dtype=F32), spec, params, target)
        return b.cast(wide, dtype=x.type.dtype)
    if p.rows and p.columns and p.summed and (x.type.dtype in (F32, F64) or x.type.dtype.is_complex):
        extents = dict(zip(p.left + p.right, x.type.shape + y.type.shape, strict=True))
        if target == "cpu":
            lies = layout(p.left, p.right, p.out, extents)
            if lies.batch and lies.words[2][-1] in lies.rows:
                lies = layout(p.right, p.left, p.out, extents)
                return _batch(b, y, x, lies, (p.right, p.left, p.out), _exchanged(params))
            if lies.batch:
                return _batch(b, x, y, lies, (p.left, p.right, p.out), params)
        if _is_turned(p, extents):
            return _matrix_product(b, y, x, _letters(f"{p.right},{p.left}->{p.out}"), _exchanged(params))
        return _matrix_product(b, x, y, p, params)
    return _spelled_out(b, x, y, p)


def _exchanged(params: dict[str, Any]) -> dict[str, Any]:
    """The params of a contraction whose operands change places."""
    return {**params, "conj": params["conj"][::-1]} if "conj" in params else params


def _conjugated(b: Builder, x: Value) -> Value:
    """A complex array conjugated, in memory."""
    parts = b.view_as_real(x)
    found: Value = b.view_as_complex(b.interleave(b.component(parts, index=0), b.neg(b.component(parts, index=1))))
    return found


def _without(b: Builder, x: Value, letters: str, ones: Collection[str]) -> Value:
    """An operand without the axes of one element."""
    axes = tuple(axis for axis, k in enumerate(letters) if k in ones)
    return b.squeeze(x, axes=axes) if axes else x


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
    perm = tuple(letters.index(k) for k in wanted)
    if x.type.dtype.is_complex:
        return b.view_as_complex(b.transpose(b.view_as_real(x), perm=(*perm, len(perm))))
    found: Value = b.transpose(x, perm=perm)
    return found


def _batch(b: Builder, x: Value, y: Value, p: Layout, given: tuple[str, str, str], params: dict[str, Any]) -> Value:
    """A batch of products, whose operands and results have the batch where it is."""
    extents = dict(zip(given[0] + given[1], x.type.shape + y.type.shape, strict=True))
    names = {p.batch: "z", p.rows: "m", p.columns: "n", p.summed: "k"}
    found, words = [], []
    for position, value in enumerate((x, y)):
        parts = p.parts(position)
        moved = _permuted(b, value, given[position], p.words[position])
        found.append(_shaped(b, moved, [product([extents[k] for k in part]) for part in parts]))
        words.append("".join(names[part] for part in parts))
    out = "".join(names[part] for part in p.parts(2))
    flat: Value = b.contract(*found, spec=f"{words[0]},{words[1]}->{out}", **params)
    return _permuted(b, _shaped(b, flat, [extents[k] for k in p.words[2]]), p.words[2], given[2])


def _shaped(b: Builder, x: Value, shape: Sequence[Extent]) -> Value:
    found: Value = x if len(shape) == x.type.rank else b.reshape(x, shape=tuple(shape))
    return found


def _is_turned(p: _Letters, extents: dict[str, Extent]) -> bool:
    """Whether the rows of a product are side by side in its result. In one that has to be rearranged, what is long stays so."""
    out = "".join(k for k in p.out if k not in p.batch)
    return out == p.columns + p.rows or (out != p.rows + p.columns and _longest(out, extents) in p.rows)


def _longest(letters: str, extents: dict[str, Extent]) -> str:
    """The last letter that is no short axis, such as those of windows."""
    long = [k for k in letters if not _is_short(extents[k])]
    return long[-1] if long else letters[-1]


def _is_short(extent: Extent) -> bool:
    return isinstance(extent, int) and extent <= SHORT


def _in_order(p: _Letters, extents: dict[str, Extent]) -> _Letters:
    """The same with the summed axes in the order of the right operand, if that has to be rearranged otherwise and the left one
    has to be anyway."""
    other = replace(p, summed="".join(k for k in p.right if k in p.summed))
    is_free = [(_is_stored(q.left, (q.batch, q.rows, q.summed)), _is_stored(q.right, (q.batch, q.summed, q.columns)))
               for q in (p, other)]
    return other if is_free[1][1] and not any(is_free[0]) else p


def _is_stored(letters: str, parts: Sequence[str]) -> bool:
    batch, first, second = parts
    return letters in (batch + first + second, batch + second + first)


def _matrix_product(b: Builder, x: Value, y: Value, p: _Letters, params: dict[str, Any]) -> Value:
    extents = dict(zip(p.left + p.right, x.type.shape + y.type.shape, strict=True))
    p = _in_order(p, extents)
    x, left = _operand(b, x, p.left, (p.batch, p.rows, p.summed), extents, "zmk")
    y, right = _operand(b, y, p.right, (p.batch, p.summed, p.columns), extents, "zkn")
    z = "z" if p.batch else ""
    if "conj" in params:
        # those that are stored transposed are conjugated as they are read, by libraries too
        crossed = left[-1] == "m", right[-1] == "k"
        given = zip((x, y), params["conj"], crossed, strict=True)
        x, y = (_conjugated(b, v) if conj and not is_crossed else v for v, conj, is_crossed in given)
        params = {**params, "conj": tuple(c and t for c, t in zip(params["conj"], crossed, strict=True))}
    flat: Value = b.contract(x, y, spec=f"{left},{right}->{z}mn", **params)
    order = p.batch + p.rows + p.columns
    shaped = b.reshape(flat, shape=tuple(extents[k] for k in order)) if len(order) != len(z) + 2 else flat
    return _permuted(b, shaped, order, p.out)


def _operand(
    b: Builder, x: Value, letters: str, parts: Sequence[str], extents: dict[str, Extent], names: str
) -> tuple[Value, str]:
    """An operand as batch, and its two matrix axes in the order it is stored in, each part one axis; and its subscripts. One
    that has to be rearranged keeps what is long side by side."""
    batch, first, second = parts
    straight, crossed = batch + first + second, batch + second + first
    is_crossed = letters == crossed or (letters != straight and _longest(letters, extents) in first)
    order = crossed if is_crossed else straight
    x = _permuted(b, x, letters, order)
    merged = [part for part in ((batch, second, first) if is_crossed else (batch, first, second)) if part]
    if any(len(part) > 1 for part in merged):
        x = b.reshape(x, shape=tuple(product([extents[k] for k in part]) for part in merged))
    matrix = names[2] + names[1] if is_crossed else names[1:]
    return x, names[0] * bool(batch) + matrix
