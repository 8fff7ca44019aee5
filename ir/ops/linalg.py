"""Linear algebra: factorisations and solves of matrices, the last two axes of their operands; axes before those are a batch.

``Linalg`` ops have kernels of their own, around calls of BLAS and LAPACK. ``Composed`` ops are ordinary ops but for their
gradient. Most are given a matrix with its factors: their values come from the factors and their gradients go to the matrix alone,
since what they compute does not depend on how it was factored. So one factorisation serves a solve, its gradient and a
determinant.

No op fails: a factorisation says in a result where it broke down, and a ``check`` of it raises.

The rules of gradients are those of M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
algorithmic differentiation" (2008), and for the Cholesky factor I. Murray, "Differentiation of the Cholesky decomposition"
(2016), equation 8. A matrix of which an op reads one triangle counts as symmetric, and so is its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.op import OPS, ZERO, Contribution, Op, Same
from pullback.ir.ops.library import getrf, potrf, trsm
from pullback.ir.structure import Block, Value
from pullback.ir.types import DTYPES, F32, F64, I64, ArrayType, RefType, Shape, Type

I32 = DTYPES["i32"]


def matrices(types: Sequence[Type], count: int, same: Same) -> list[ArrayType]:
    """The operands of one float dtype and one batch. Raises TypeError."""
    arrays = [t for t in types if isinstance(t, ArrayType)]
    if len(arrays) != count or len(types) != count:
        raise TypeError(f"takes {count} arrays")
    first = arrays[0]
    for t in arrays:
        if t.rank < 2 or t.rank != first.rank or t.dtype is not first.dtype or t.dtype not in (F32, F64):
            raise TypeError("takes matrices of f32 or of f64, with as many batch axes")
        for e, f in zip(first.shape[:-2], t.shape[:-2], strict=True):
            same(e, f)
    same(first.shape[-2], first.shape[-1])
    return arrays


@dataclass(frozen=True, eq=False, kw_only=True)
class Linalg(Op):
    """``typed_as(types, params, same)`` is the type rule. ``body(b, params, *refs)`` emits, in kernel IR, the work on one element
    of the batch; the references are the operands, the results and the scratch buffers; ``core`` are the ranks they then have."""

    typed_as: Callable[[Sequence[Type], Mapping[str, Any], Same], tuple[ArrayType, ...]]
    core: tuple[int, ...]
    body: Callable[..., None]
    scratch: Callable[[ArrayType, Mapping[str, Any]], tuple[RefType, ...]] = lambda t, params: ()

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        return self.typed_as(types, params, same)


@dataclass(frozen=True, eq=False, kw_only=True)
class Composed(Op):
    """``typed_as`` as of ``Linalg``. ``compose(b, *operands, **params)`` emits ordinary ops and returns the results."""

    typed_as: Callable[[Sequence[Type], Mapping[str, Any], Same], tuple[ArrayType, ...]]
    compose: Callable[..., tuple[Value, ...]]

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        return self.typed_as(types, params, same)


# what the rules are made of


def matmul(b: Any, x: Value, y: Value, rows: str = "ik", columns: str = "kj") -> Value:
    """The product of matrices; "ki" and "jk" are those of a transposed operand."""
    batch = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[: x.type.rank - 2]
    found: Value = b.contract(x, y, spec=f"{batch}{rows},{batch}{columns}->{batch}ij")
    return found


def turned(b: Any, x: Value) -> Value:
    """The transposed matrix."""
    rank = x.type.rank
    found: Value = b.transpose(x, perm=(*range(rank - 2), rank - 1, rank - 2))
    return found


def position(b: Any, shape: Shape, axis: int) -> Value:
    found: Value = b.iota(shape=shape, axis=axis, dtype=I64)
    return found


def rows_and_columns(b: Any, t: Any) -> tuple[Value, Value]:
    """The row and the column of each element of matrices of a type."""
    return position(b, t.shape, t.rank - 2), position(b, t.shape, t.rank - 1)


def triangle(b: Any, x: Value, lower: bool, strict: bool = False) -> Value:
    """A triangle of the matrix, zero elsewhere; ``strict``: without the diagonal."""
    row, column = rows_and_columns(b, x.type)
    large, small = (row, column) if lower else (column, row)
    found: Value = b.select((b.gt if strict else b.ge)(large, small), x, b.zeros_like(x))
    return found


def identity(b: Any, t: Any) -> Value:
    """The identity matrix of a type."""
    found: Value = b.cast(b.eq(*rows_and_columns(b, t)), dtype=t.dtype)
    return found


def _rows_at(b: Any, x: Value, perm: Value) -> list[Value]:
    """The indices of the rows ``perm`` of matrices: one array for each batch axis, then ``perm``."""
    return [position(b, perm.type.shape, k) for k in range(x.type.rank - 2)] + [perm]


def take_rows(b: Any, x: Value, perm: Value) -> Value:
    """Row perm[i] as row i."""
    found: Value = b.gather(x, *_rows_at(b, x, perm), axes=tuple(range(x.type.rank - 1)))
    return found


def put_rows(b: Any, x: Value, perm: Value) -> Value:
    """Row i as row perm[i]."""
    found: Value = b.scatter_set(b.zeros_like(x), *_rows_at(b, x, perm), x, axes=tuple(range(x.type.rank - 1)))
    return found


def _diagonal(b: Any, x: Value) -> Value:
    shape = x.type.shape[:-1]
    along = [position(b, shape, k) for k in range(len(shape))]
    found: Value = b.gather(x, *along, along[-1], axes=tuple(range(x.type.rank)))
    return found


# what the kernels are made of


def length(b: Any, ref: Value, axis: int) -> Value:
    found: Value = b.emit(OPS["extent"], (), {"size": ref.type.shape[axis]})[0]
    return found


def each(b: Any, ref: Value, element: Callable[[Value, Value], Value]) -> None:
    """Store ``element(i, j)`` at each place of a matrix."""
    i = b.open("i")
    j = b.open("j")
    b.here("store", element(i, j), ref, i, j)
    b.close(j, length(b, ref, 1))
    b.close(i, length(b, ref, 0))


# mirror: the symmetric matrix of which one triangle is given


def _mirror(a: Any, lower: bool) -> Any:
    part = np.tril(a) if lower else np.triu(a)
    return np.where(np.eye(a.shape[-1], dtype=bool), a, part + np.swapaxes(part, -1, -2))


def _square_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return tuple(matrices(types, 1, same))


def _compose_mirror(b: Any, a: Value, lower: bool) -> tuple[Value, ...]:
    row, column = rows_and_columns(b, a.type)
    return (b.select((b.ge if lower else b.le)(row, column), a, turned(b, a)),)


def _mirror_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    return [symmetric(b, cts[0])]


def symmetric(b: Any, x: Value) -> Value:
    """The symmetric part."""
    found: Value = b.mul(b.add(x, turned(b, x)), b.full(0.5, x.type))
    return found


mirror = Composed(name="mirror", reference=_mirror, pullback=_mirror_rule, typed_as=_square_type, compose=_compose_mirror)
"""Param ``lower``: which triangle is read."""


# cholesky: the lower factor, and where it broke down


def _cholesky(a: Any) -> tuple[Any, Any]:
    factor, info = np.tril(a), np.zeros(a.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        potrf.function(factor[index], info[(*index, ...)])
    return factor, info


def _cholesky_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return a, ArrayType(I32, a.shape[:-2])


def _cholesky_body(b: Any, params: Mapping[str, Any], a: Value, factor: Value, info: Value) -> None:
    zero = b.const(0, a.type.dtype)
    each(b, factor, lambda i, j: b.here("select", b.ge(i, j), b.here("load", a, i, j), zero))
    b.here("potrf", factor, info)


def _cholesky_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    factor = outputs[0]
    product = matmul(b, factor, cts[0], "ki")
    row, column = rows_and_columns(b, factor.type)
    halved = b.select(b.eq(row, column), b.mul(product, b.full(0.5, product.type)), product)
    half = b.select(b.ge(row, column), halved, b.zeros_like(halved))
    left = b.triangular_solve(factor, half, lower=True, transposed=True, unit_diagonal=False)
    both = b.triangular_solve(factor, turned(b, left), lower=True, transposed=True, unit_diagonal=False)
    return [symmetric(b, both)]


cholesky = Linalg(
    name="cholesky", reference=_cholesky, pullback=_cholesky_rule, typed_as=_cholesky_type, core=(2, 2, 0), body=_cholesky_body
)
"""Results: the lower factor of a symmetric matrix, of which the lower triangle is read; and, of i32, 0 or the order of the first
leading minor that is not positive (the factor then is of no use)."""


# triangular_solve: x with op(a) x = b


def _triangular_solve(a: Any, b: Any, lower: bool, transposed: bool, unit_diagonal: bool) -> Any:
    x = np.array(b)
    for index in np.ndindex(a.shape[:-2]):
        trsm.function(a[index], x[index], lower=lower, transposed=transposed, unit_diagonal=unit_diagonal)
    return x


def _solve_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a, b = matrices(types, 2, same)
    same(a.shape[-1], b.shape[-2])
    return (b,)


def _triangular_body(b: Any, params: Mapping[str, Any], a: Value, given: Value, x: Value) -> None:
    each(b, x, lambda i, j: b.here("load", given, i, j))
    b.here("trsv" if x.type.shape[1] == 1 else "trsm", a, x, **params)


def _product_of(b: Any, x: Value, y: Value) -> Value:
    """Minus the product of x and the transpose of y."""
    found: Value = b.neg(matmul(b, x, y, "ik", "jk"))
    return found


def _triangular_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    a, _ = inputs
    transposed, lower, unit = params["transposed"], params["lower"], params["unit_diagonal"]
    ct = b.triangular_solve(a, cts[0], lower=lower, transposed=not transposed, unit_diagonal=unit)
    if not wants[0]:
        return [ZERO, ct]
    whole = _product_of(b, outputs[0], ct) if transposed else _product_of(b, ct, outputs[0])
    return [triangle(b, whole, lower, strict=unit), ct]


triangular_solve = Linalg(
    name="triangular_solve", reference=_triangular_solve, pullback=_triangular_rule, typed_as=_solve_type, core=(2, 2, 2),
    body=_triangular_body,
)  # fmt: skip
"""Params ``lower``: which triangle of a is read, the other counting as zero; ``transposed``: op(a) is the transpose of that;
``unit_diagonal``: the diagonal is not read and counts as ones."""


# lu: factors with partial pivoting


def _lu(a: Any) -> tuple[Any, Any]:
    packed, pivots = np.empty_like(a), np.empty(a.shape[:-1], np.int64)
    for index in np.ndindex(a.shape[:-2]):
        columns, found = np.array(a[index].T, order="C"), np.zeros(a.shape[-1], np.int32)
        getrf.function(columns, found, np.zeros((), np.int32))
        packed[index], pivots[index] = columns.T, found - 1
    return packed, pivots


def _lu_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return a, ArrayType(I64, a.shape[:-1])


def _lu_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    n = a.shape[-1]
    return RefType(a.dtype, (n, n)), RefType(I32, (n,)), RefType(I32)


def _lu_body(b: Any, params: Mapping[str, Any], a: Value, packed: Value, pivots: Value, *scratch: Value) -> None:
    columns, found, _ = scratch
    each(b, columns, lambda i, j: b.here("load", a, j, i))
    b.here("getrf", *scratch)
    each(b, packed, lambda i, j: b.here("load", columns, j, i))
    i = b.open("i")
    b.here("store", b.sub(b.cast(b.here("load", found, i), dtype=I64), b.const(1, I64)), pivots, i)
    b.close(i, length(b, pivots, 0))


def _lu_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    packed, pivots = outputs
    ct = cts[0]
    unit = b.add(triangle(b, packed, True, strict=True), identity(b, packed.type))
    lower = triangle(b, matmul(b, unit, triangle(b, ct, True, strict=True), "ki"), True, strict=True)
    upper = triangle(b, matmul(b, triangle(b, ct, False), triangle(b, packed, False), "ik", "jk"), False)
    left = b.triangular_solve(packed, b.add(lower, upper), lower=True, transposed=True, unit_diagonal=True)
    right = b.triangular_solve(packed, turned(b, left), lower=False, transposed=False, unit_diagonal=False)
    return [put_rows(b, turned(b, right), b.permutation(pivots))]


lu = Linalg(
    name="lu", reference=_lu, pullback=_lu_rule, typed_as=_lu_type, core=(2, 2, 1, 2, 1, 0), body=_lu_body, scratch=_lu_scratch
)
"""Results: U, with the part of L below its diagonal of ones, such that L U is the matrix with its rows exchanged; ``pivots``:
row i was exchanged with row pivots[i], in order. The matrix is singular where the diagonal of U has a zero."""


# permutation: where pivots take each row from


def _permutation(pivots: Any) -> Any:
    perm = np.empty_like(pivots)
    for index in np.ndindex(pivots.shape[:-1]):
        order = list(range(pivots.shape[-1]))
        for i, k in enumerate(pivots[index]):
            order[i], order[k] = order[k], order[i]
        perm[index] = order
    return perm


def _permutation_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (pivots,) = types
    if not isinstance(pivots, ArrayType) or pivots.dtype is not I64 or not pivots.rank:
        raise TypeError("takes i64 vectors")
    return (pivots,)


def _permutation_body(b: Any, params: Mapping[str, Any], pivots: Value, perm: Value) -> None:
    rows = length(b, perm, 0)
    i = b.open("i")
    b.here("store", i, perm, i)
    b.close(i, rows)
    i = b.open("i")
    k = b.here("load", pivots, i)
    own, other = b.here("load", perm, i), b.here("load", perm, k)
    b.here("store", own, perm, k)
    b.here("store", other, perm, i)
    b.close_ordered(i, rows)


permutation = Linalg(
    name="permutation", reference=_permutation, nondifferentiable="a position is an integer", typed_as=_permutation_type,
    core=(1, 1), body=_permutation_body,
)  # fmt: skip
"""Row i of the exchanged rows is row perm[i] of the matrix. The pivots must be in range."""


# solve and slogdet, given a with its factors


def _factors(types: Sequence[Type], count: int, same: Same) -> list[ArrayType]:
    """Types of a, packed, and a matrix if ``count`` is 3; pivots come last."""
    if len(types) != count + 1:
        raise TypeError(f"takes {count} matrices and pivots")
    arrays = matrices(types[:count], count, same)
    for e, f in zip(arrays[0].shape, arrays[1].shape, strict=True):
        same(e, f)
    pivots = types[count]
    if not isinstance(pivots, ArrayType) or pivots.dtype is not I64 or pivots.rank != arrays[0].rank - 1:
        raise TypeError("takes as pivots an i64 for each row")
    for e, f in zip(pivots.shape, arrays[0].shape[:-1], strict=True):
        same(e, f)
    return arrays


def _solve_by_factors_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a, _, b = _factors(types, 3, same)
    same(a.shape[-1], b.shape[-2])
    return (b,)


def _solve(a: Any, packed: Any, b: Any, pivots: Any, transposed: bool) -> Any:
    at = _permutation(pivots)[..., None]
    if not transposed:
        x = _triangular_solve(packed, np.take_along_axis(b, at, -2), True, False, True)
        return _triangular_solve(packed, x, False, False, False)
    x = _triangular_solve(packed, b, False, True, False)
    return np.take_along_axis(_triangular_solve(packed, x, True, True, True), np.argsort(at, -2), -2)


def _compose_solve(b: Any, a: Value, packed: Value, given: Value, pivots: Value, transposed: bool) -> tuple[Value, ...]:
    perm = b.permutation(pivots)
    x = given if transposed else take_rows(b, given, perm)
    for lower in (False, True) if transposed else (True, False):
        x = b.triangular_solve(packed, x, lower=lower, transposed=transposed, unit_diagonal=lower)
    return (put_rows(b, x, perm) if transposed else x,)


def _solve_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    a, packed, _, pivots = inputs
    transposed = params["transposed"]
    ct = b.solve(a, packed, cts[0], pivots, transposed=not transposed)
    if not wants[0]:
        return [ZERO, ZERO, ct, ZERO]
    return [_product_of(b, outputs[0], ct) if transposed else _product_of(b, ct, outputs[0]), ZERO, ct, ZERO]


solve = Composed(name="solve", reference=_solve, pullback=_solve_rule, typed_as=_solve_by_factors_type, compose=_compose_solve)
"""x with a x = b, or with ``transposed`` of the transpose of a; operands a, packed, b, pivots."""


def _slogdet_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a, _ = _factors(types, 2, same)
    return (a.with_shape(a.shape[:-2]),) * 2


def _slogdet(a: Any, packed: Any, pivots: Any) -> tuple[Any, Any]:
    diagonal = np.diagonal(packed, axis1=-2, axis2=-1)
    signs = np.where(diagonal < 0, -1, np.where(diagonal == 0, 0, 1)) * np.where(pivots == np.arange(a.shape[-1]), 1, -1)
    with np.errstate(all="ignore"):
        size = np.sum(np.log(np.abs(diagonal)), axis=-1)
    return np.asarray(np.prod(signs, axis=-1), a.dtype), np.asarray(size, a.dtype)


def _compose_slogdet(b: Any, a: Value, packed: Value, pivots: Value) -> tuple[Value, ...]:
    diagonal = _diagonal(b, packed)
    last = (diagonal.type.rank - 1,)
    zero, one = b.zeros_like(diagonal), b.full(1, diagonal.type)
    sign = b.select(b.lt(diagonal, zero), b.neg(one), b.select(b.eq(diagonal, zero), zero, one))
    is_kept = b.eq(pivots, position(b, pivots.type.shape, *last))
    return b.prod(b.select(is_kept, sign, b.neg(sign)), axes=last), b.sum(b.log(b.abs(diagonal)), axes=last)


def _slogdet_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Where nothing is asked of a determinant, its inverse is not looked at."""
    if cts[1] is ZERO:
        return [ZERO] * 3
    a, packed, pivots = inputs
    ct, zero = _spread(b, cts[1], a.type), b.zeros_like(a)
    inverse = b.solve(a, packed, identity(b, a.type), pivots, transposed=True)
    return [b.select(b.eq(ct, zero), zero, b.mul(ct, inverse)), ZERO, ZERO]


def _spread(b: Any, x: Value, t: Any) -> Value:
    """A number for each matrix at all of its places."""
    found: Value = b.broadcast(x, axes=(t.rank - 2, t.rank - 1), shape=t.shape)
    return found


slogdet = Composed(name="slogdet", reference=_slogdet, pullback=_slogdet_rule, typed_as=_slogdet_type, compose=_compose_slogdet)
"""The sign of the determinant (0 of a singular matrix) and the logarithm of its absolute value; operands a, packed, pivots."""


def _det_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return _slogdet_type(types, params, same)[:1]


def _det(a: Any, packed: Any, pivots: Any) -> Any:
    sign, size = _slogdet(a, packed, pivots)
    with np.errstate(all="ignore"):
        return np.asarray(sign * np.exp(size))


def _compose_det(b: Any, a: Value, packed: Value, pivots: Value) -> tuple[Value, ...]:
    sign, size = _compose_slogdet(b, a, packed, pivots)
    return (b.mul(sign, b.exp(size)),)


def _det_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """The cofactors: the determinant times the inverse. They are polynomials in the elements, so a zero pivot may be moved by a
    number too small to show in them, where the determinant is 0 and there is no inverse. It would show in second derivatives:
    a root of the determinant makes those NaN."""
    a, packed, pivots = inputs
    diagonal = _diagonal(b, packed)
    largest = b.max(b.abs(diagonal), axes=(diagonal.type.rank - 1,))
    least = b.select(
        b.eq(largest, b.zeros_like(largest)), b.full(1e-30, largest.type), b.mul(largest, b.full(2.0**-60, largest.type))
    )
    is_pivot = b.eq(*rows_and_columns(b, a.type))
    is_zero = b.bitand(is_pivot, b.eq(packed, b.zeros_like(packed)))
    moved = b.select(is_zero, _spread(b, least, a.type), packed)
    sign, size = b.slogdet(a, moved, pivots)
    inverse = b.solve(a, moved, identity(b, a.type), pivots, transposed=True)
    none = b.mul(b.sqrt(b.abs(outputs[0])), b.zeros_like(outputs[0]))
    value = b.mul(cts[0], b.add(b.mul(sign, b.exp(size)), none))
    return [b.mul(_spread(b, value, a.type), inverse), ZERO, ZERO]


det = Composed(name="det", reference=_det, pullback=_det_rule, typed_as=_det_type, compose=_compose_det)
"""The determinant; operands a, packed, pivots."""
