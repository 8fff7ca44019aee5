"""canonical_contractions: turn every ``contract`` into a matrix product in canonical form, or into elementwise ops and a sum.

Requires: an optimised func. Keeps: all other instructions.

A contraction with rows, columns and a summed axis, of float32 or float64, on the CPU also of complex numbers, becomes
"zmk,zkn->zmn" with any of its operands stored transposed (no z if there is no batch axis): a library call, or a kernel with
its neighbours (``matmul_fusion``). On the CPU z may be anywhere but last, and absent from one operand
(``contraction_layouts``): such a batch is a generated kernel (``kernels.groups.batched_matmul``). Every other contraction,
including matrix-vector products and products with nothing to sum, becomes broadcasts, a product and a sum, which fuse with
their neighbours. A contraction of 16-bit floats with a summed axis is computed in float32 between casts. Axes known to have
extent one are removed: a product with one row or one column is a matrix-vector product.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.fuse.rewrites.contraction_layouts import Layout, layout
from pullback.codegen.math.recipes import HALF
from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.core.types import F32, F64, Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.array.contract import Contract, others, split
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.passes.editing.cse import key
from pullback.ir.passes.editing.replay import New, replaced
from pullback.ir.shapes.extents import product

SHORT_EXTENT = 16
"""Largest constant extent of a short axis."""


def canonical_contractions(function: Function, target: str) -> Function:
    """Return the function with canonical contractions; equal transposes of their operands are shared."""

    def emit(b: Builder, i: Instruction, new: New) -> list[Value]:
        x, y = map(new, i.operands)
        return [_canonical(b, x, y, i.params["spec"], others(i.params), target)]

    rewritten = replaced(function, lambda i: isinstance(i.op, Contract), emit)
    return function if rewritten is function else _merge_reindexing(rewritten)


def _merge_reindexing(function: Function) -> Function:
    """Return the function with equal reindexing ops merged. Other equal instructions are duplicates on purpose."""
    first: dict[Value, Value] = {}
    earlier_results: dict[tuple[Any, ...], Value] = {}
    instructions: list[Instruction] = []
    for i in function.instructions:
        operands = tuple(first.get(v, v) for v in i.operands)
        if isinstance(i.op, Reindex):
            earlier = earlier_results.setdefault(key(i.op, operands, i.params), i.result)
            if earlier is not i.result:
                first[i.result] = earlier
                continue
        instructions.append(i if operands == i.operands else replace(i, operands=operands))
    results = tuple(first.get(v, v) for v in function.results)
    return replace(function, body=Block(function.parameters, tuple(instructions), results))


@dataclass(frozen=True, eq=False)
class _Letters:
    """The letters of a contraction by role."""

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
    """Emit the canonical form of a contraction."""
    p = _letters(spec)
    ones = {k for v, word in ((x, p.left), (y, p.right)) for e, k in zip(v.type.shape, word, strict=True) if e == 1}
    if ones:
        x, y = (_squeeze(b, v, word, ones) for v, word in ((x, p.left), (y, p.right)))
        result = _canonical(b, x, y, "".join(k for k in spec if k not in ones), params, target)
        if p.summed and ones.issuperset(p.summed) and not result.type.dtype.is_complex:
            result = b.add(result, b.zeros_like(result))  # a sum begins with 0: of -0 alone it is 0
        axes = tuple(axis for axis, k in enumerate(p.out) if k in ones)
        shape = iter(result.type.shape)
        full_shape = tuple(1 if k in ones else next(shape) for k in p.out)
        return b.reshape(result, shape=full_shape) if axes else result
    if p.summed and x.type.dtype in HALF:
        wide = _canonical(b, b.cast(x, dtype=F32), b.cast(y, dtype=F32), spec, params, target)
        return b.cast(wide, dtype=x.type.dtype)
    if p.rows and p.columns and p.summed and (x.type.dtype in (F32, F64) or x.type.dtype.is_complex):
        extents = dict(zip(p.left + p.right, x.type.shape + y.type.shape, strict=True))
        if target == "cpu":
            chosen = layout(p.left, p.right, p.out, extents)
            if chosen.batch and chosen.words[2][-1] in chosen.rows:
                chosen = layout(p.right, p.left, p.out, extents)
                return _batch(b, y, x, chosen, (p.right, p.left, p.out), _exchanged(params))
            if chosen.batch:
                return _batch(b, x, y, chosen, (p.left, p.right, p.out), params)
        if _is_transposed(p, extents):
            return _matrix_product(b, y, x, _letters(f"{p.right},{p.left}->{p.out}"), _exchanged(params))
        return _matrix_product(b, x, y, p, params)
    return _as_elementwise(b, x, y, p)


def _exchanged(params: dict[str, Any]) -> dict[str, Any]:
    """Return the params of a contraction with its operands exchanged."""
    return {**params, "conj": params["conj"][::-1]} if "conj" in params else params


def _conjugated(b: Builder, x: Value) -> Value:
    """Emit the conjugate of a complex array, in memory."""
    parts = b.view_as_real(x)
    result: Value = b.view_as_complex(b.interleave(b.component(parts, index=0), b.neg(b.component(parts, index=1))))
    return result


def _squeeze(b: Builder, x: Value, letters: str, ones: Collection[str]) -> Value:
    """Emit an operand without its axes of extent one."""
    axes = tuple(axis for axis, k in enumerate(letters) if k in ones)
    return b.squeeze(x, axes=axes) if axes else x


def _as_elementwise(b: Builder, x: Value, y: Value, p: _Letters) -> Value:
    """Emit the sum of the product over all axes at once, in the axis order of the larger operand."""
    if not p.rows or not p.columns:
        space = p.left if len(p.left) >= len(p.right) else p.right
    else:
        space = p.out + p.summed
    extents = dict(zip(p.left + p.right, x.type.shape + y.type.shape, strict=True))
    products = b.mul(_broadcast(b, x, p.left, space, extents), _broadcast(b, y, p.right, space, extents))
    axes = tuple(k for k, letter in enumerate(space) if letter in p.summed)
    total = b.sum(products, axes=axes) if axes else products
    letters = "".join(letter for letter in space if letter not in p.summed)
    return _transpose(b, total, letters, p.out)


def _broadcast(b: Builder, x: Value, letters: str, space: str, extents: dict[str, Extent]) -> Value:
    """Emit an operand broadcast to all axes of ``space``."""
    ordered = "".join(k for k in space if k in letters)
    x = _transpose(b, x, letters, ordered)
    axes = tuple(k for k, letter in enumerate(space) if letter not in letters)
    result: Value = b.broadcast(x, axes=axes, shape=tuple(extents[k] for k in space)) if axes else x
    return result


def _transpose(b: Builder, x: Value, letters: str, order: str) -> Value:
    if letters == order:
        return x
    perm = tuple(letters.index(k) for k in order)
    if x.type.dtype.is_complex:
        return b.view_as_complex(b.transpose(b.view_as_real(x), perm=(*perm, len(perm))))
    result: Value = b.transpose(x, perm=perm)
    return result


def _batch(b: Builder, x: Value, y: Value, p: Layout, spec_words: tuple[str, str, str], params: dict[str, Any]) -> Value:
    """Emit a batch of products; the batch axis of operands and result stays in place."""
    extents = dict(zip(spec_words[0] + spec_words[1], x.type.shape + y.type.shape, strict=True))
    names = {p.batch: "z", p.rows: "m", p.columns: "n", p.summed: "k"}
    operands, words = [], []
    for position, value in enumerate((x, y)):
        parts = p.parts(position)
        moved = _transpose(b, value, spec_words[position], p.words[position])
        operands.append(_reshape(b, moved, [product([extents[k] for k in part]) for part in parts]))
        words.append("".join(names[part] for part in parts))
    out = "".join(names[part] for part in p.parts(2))
    flat: Value = b.contract(*operands, spec=f"{words[0]},{words[1]}->{out}", **params)
    return _transpose(b, _reshape(b, flat, [extents[k] for k in p.words[2]]), p.words[2], spec_words[2])


def _reshape(b: Builder, x: Value, shape: Sequence[Extent]) -> Value:
    result: Value = x if len(shape) == x.type.rank else b.reshape(x, shape=tuple(shape))
    return result


def _is_transposed(p: _Letters, extents: dict[str, Extent]) -> bool:
    """Return whether the rows of a product are contiguous in its result. A result that has to be transposed keeps its long
    axes contiguous."""
    out = "".join(k for k in p.out if k not in p.batch)
    return out == p.columns + p.rows or (out != p.rows + p.columns and _last_long(out, extents) in p.rows)


def _last_long(letters: str, extents: dict[str, Extent]) -> str:
    """Return the last letter whose axis is not short (short axes are, for example, those of windows); else the last letter."""
    long = [k for k in letters if not _is_short(extents[k])]
    return long[-1] if long else letters[-1]


def _is_short(extent: Extent) -> bool:
    return isinstance(extent, int) and extent <= SHORT_EXTENT


def _in_order(p: _Letters, extents: dict[str, Extent]) -> _Letters:
    """Return the letters with the summed axes in the order of the right operand, if it would otherwise be transposed and the
    left one has to be transposed in any case."""
    other = replace(p, summed="".join(k for k in p.right if k in p.summed))
    is_free = [
        (_is_stored(q.left, (q.batch, q.rows, q.summed)), _is_stored(q.right, (q.batch, q.summed, q.columns))) for q in (p, other)
    ]
    return other if is_free[1][1] and not any(is_free[0]) else p


def _is_stored(letters: str, parts: Sequence[str]) -> bool:
    """Return whether an operand needs no transposition."""
    batch, first, second = parts
    return letters in (batch + first + second, batch + second + first)


def _matrix_product(b: Builder, x: Value, y: Value, p: _Letters, params: dict[str, Any]) -> Value:
    """Emit a matrix product, possibly in a batch, for a library."""
    extents = dict(zip(p.left + p.right, x.type.shape + y.type.shape, strict=True))
    p = _in_order(p, extents)
    x, left = _operand(b, x, p.left, (p.batch, p.rows, p.summed), extents, "zmk")
    y, right = _operand(b, y, p.right, (p.batch, p.summed, p.columns), extents, "zkn")
    z = "z" if p.batch else ""
    if "conj" in params:
        # operands stored transposed are conjugated as they are read, also by libraries
        crossed = left[-1] == "m", right[-1] == "k"
        operands = zip((x, y), params["conj"], crossed, strict=True)
        x, y = (_conjugated(b, v) if conj and not is_crossed else v for v, conj, is_crossed in operands)
        params = {**params, "conj": tuple(c and t for c, t in zip(params["conj"], crossed, strict=True))}
    flat: Value = b.contract(x, y, spec=f"{left},{right}->{z}mn", **params)
    order = p.batch + p.rows + p.columns
    shaped = b.reshape(flat, shape=tuple(extents[k] for k in order)) if len(order) != len(z) + 2 else flat
    return _transpose(b, shaped, order, p.out)


def _operand(
    b: Builder, x: Value, letters: str, parts: Sequence[str], extents: dict[str, Extent], names: str
) -> tuple[Value, str]:
    """Emit an operand with its batch and its two matrix axes in stored order, each part one axis; return it and its
    subscripts. An operand that has to be transposed keeps its long axes contiguous."""
    batch, first, second = parts
    straight, crossed = batch + first + second, batch + second + first
    is_crossed = letters == crossed or (letters != straight and _last_long(letters, extents) in first)
    order = crossed if is_crossed else straight
    x = _transpose(b, x, letters, order)
    merged = [part for part in ((batch, second, first) if is_crossed else (batch, first, second)) if part]
    if any(len(part) > 1 for part in merged):
        x = b.reshape(x, shape=tuple(product([extents[k] for k in part]) for part in merged))
    matrix = names[2] + names[1] if is_crossed else names[1:]
    return x, names[0] * bool(batch) + matrix
