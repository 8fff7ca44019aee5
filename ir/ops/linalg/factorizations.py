"""Matrix factorisations and ops that use the factors: Cholesky and LU factors, solves, determinants.

The gradient rules are those of M. Giles, "An extended collection of matrix derivative results for forward and reverse mode
algorithmic differentiation" (2008), and for the Cholesky factor I. Murray, "Differentiation of the Cholesky decomposition"
(2016), equation 8. A matrix of which an op reads one triangle counts as Hermitian, and so does its gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Same
from pullback.ir.core.types import BOOL, I64, ArrayType, Extent, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel import small_matrices
from pullback.ir.ops.library.family import (
    I32,
    Composed,
    Linalg,
    adjoint,
    as_dtype,
    choose,
    columns_of,
    conj,
    conjugating,
    copy,
    diagonal,
    each,
    hermitian,
    identity,
    item,
    length,
    matmul,
    matrices,
    pad_block,
    part,
    position,
    put,
    real_of,
    rectangular,
    rows_and_columns,
    rows_of,
    same_form,
    spread,
    store_transposed,
    transpose,
    triangle,
    xh_y,
)
from pullback.ir.ops.library.routines import getrf, potrf, trsm

# permuted rows


def _rows_at(b: Any, x: Value, perm: Value) -> list[Value]:
    """Return the indices of the rows ``perm`` of matrices: one array for each batch axis, then ``perm``."""
    return [position(b, perm.type.shape, k) for k in range(x.type.rank - 2)] + [perm]


def take_rows(b: Any, x: Value, perm: Value) -> Value:
    """Return ``x`` with row perm[i] as row i."""
    result: Value = b.gather(x, *_rows_at(b, x, perm), axes=tuple(range(x.type.rank - 1)))
    return result


# hermitian_from_triangle: mirrors one triangle


def _from_triangle(a: Any, lower: bool) -> Any:
    part = np.tril(a) if lower else np.triu(a)
    on_diagonal = np.eye(a.shape[-1], dtype=bool)
    return np.where(on_diagonal, a.real, part + np.swapaxes(part, -1, -2).conj()).astype(a.dtype)


def _square_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return tuple(matrices(types, 1, same))


def _compose_from_triangle(b: Any, a: Value, lower: bool) -> tuple[Value, ...]:
    row, column = rows_and_columns(b, a.type)
    mirrored = b.select((b.ge if lower else b.le)(row, column), a, adjoint(b, a))
    if a.type.dtype.kind == "f":
        return (mirrored,)
    return (b.select(b.eq(row, column), b.cast(b.real(a), dtype=a.type.dtype), mirrored),)


def _from_triangle_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    return [hermitian(b, cts[0])]


hermitian_from_triangle = Composed(
    name="hermitian_from_triangle", reference=_from_triangle, pullback=conjugating(_from_triangle_rule), typed_as=_square_type,
    compose=_compose_from_triangle,
)  # fmt: skip
"""The Hermitian matrix with the given triangle. Param ``lower``: the lower triangle is read, else the upper one."""


# cholesky: the lower factor, and the order at which it failed


def _cholesky(a: Any) -> tuple[Any, Any]:
    factor, info = np.tril(a), np.zeros(a.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        potrf.function(factor[index], info[(*index, ...)])
    return factor, info


def _cholesky_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return a, ArrayType(I32, a.shape[:-2])


def _cholesky_body(b: Any, params: Mapping[str, Any], a: Value, factor: Value, info: Value) -> None:
    each(b, factor, lambda i, j: choose(b, b.ge(i, j), item(b, a, i, j)))
    b.here("potrf", factor, info)


def _cholesky_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    factor = outputs[0]
    product = xh_y(b, factor, cts[0])
    row, column = rows_and_columns(b, factor.type)
    halved = b.select(b.eq(row, column), b.mul(product, b.full(0.5, product.type)), product)
    half = b.select(b.ge(row, column), halved, b.zeros_like(halved))
    conj_factor = conj(b, factor)
    left = b.triangular_solve(conj_factor, half, lower=True, transposed=True, unit_diagonal=False)
    result = b.triangular_solve(conj_factor, adjoint(b, left), lower=True, transposed=True, unit_diagonal=False)
    return [hermitian(b, result)]


cholesky = Linalg(
    name="cholesky",
    reference=_cholesky,
    pullback=conjugating(_cholesky_rule),
    typed_as=_cholesky_type,
    core=(2, 2, 0),
    body=_cholesky_body,
    small=small_matrices.cholesky,
)
"""Results: the lower factor of a Hermitian matrix, of which the lower triangle is read; and, of i32, 0 or the order of the
first leading minor that is not positive (the factor is then meaningless)."""


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


def _triangular_body(b: Any, params: Mapping[str, Any], a: Value, right_sides: Value, x: Value) -> None:
    copy(b, right_sides, x)
    b.here("trsv" if x.type.shape[1] == 1 else "trsm", a, x, **params)


def _minus_product(b: Any, x: Value, y: Value) -> Value:
    """Return -x y^T."""
    return matmul(b, b.neg(x), y, "ik", "jk")


def _triangular_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    a, _ = inputs
    transposed, lower, unit = params["transposed"], params["lower"], params["unit_diagonal"]
    ct = b.triangular_solve(a, cts[0], lower=lower, transposed=not transposed, unit_diagonal=unit)
    if not wants[0]:
        return [ZERO, ct]
    product = _minus_product(b, outputs[0], ct) if transposed else _minus_product(b, ct, outputs[0])
    return [triangle(b, product, lower, strict=unit), ct]


triangular_solve = Linalg(
    name="triangular_solve", reference=_triangular_solve, pullback=_triangular_rule, typed_as=_solve_type, core=(2, 2, 2),
    body=_triangular_body, small=small_matrices.triangular_solve,
)  # fmt: skip
"""x with op(a) x = b. Params ``lower``: the triangle of a that is read, the other one counting as zero; ``transposed``: op(a)
is its transpose; ``unit_diagonal``: the diagonal is not read and counts as ones."""


# lu: factors with partial pivoting


def _lu(a: Any, form: str) -> tuple[Any, Any]:
    packed, pivots = np.empty_like(a), np.empty(a.shape[:-1], np.int64)
    for index in np.ndindex(a.shape[:-2]):
        columns, exchanges = np.array(a[index].T, order="C"), np.zeros(min(a.shape[-2:]), np.int32)
        getrf.function(columns, exchanges, np.zeros((), np.int32))
        packed[index], pivots[index] = columns.T, np.arange(a.shape[-2])
        pivots[index][: len(exchanges)] = exchanges - 1
    return packed, pivots


def _lu_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = rectangular(types)
    same_form(a, params["form"], same)
    return a, ArrayType(I64, a.shape[:-1])


def _lu_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    m, n = a.shape[-2:]
    return RefType(a.dtype, (n, m)), RefType(I32, (m if params["form"] == "wide" else n,)), RefType(I32)


def _lu_body(b: Any, params: Mapping[str, Any], a: Value, packed: Value, pivots: Value, *scratch: Value) -> None:
    columns, exchanges, _ = scratch
    store_transposed(b, a, columns)
    b.here("getrf", *scratch)
    store_transposed(b, columns, packed)
    i = b.open("i")
    b.here("store", i, pivots, i)
    b.close(i, length(b, pivots, 0))
    i = b.open("i")
    b.here("store", b.sub(b.cast(b.here("load", exchanges, i), dtype=I64), b.const(1, I64)), pivots, i)
    b.close(i, length(b, exchanges, 0))


def _lu_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the gradient of the packed factors. With square blocks L1 and U1, one of which may be all of L or U, and M =
    L1^-1 dA1 U1^-1: below the square part dL2 = dA2 U1^-1 - L2 triu(M), to its right dU2 = L1^-1 dA2 - tril(M, -1) U2."""
    packed, pivots = outputs
    ct, form = cts[0], params["form"]
    m, n = packed.type.shape[-2:]
    k = m if form == "wide" else n
    core, ct_core = part(b, packed, 0, 0, k, k), part(b, ct, 0, 0, k, k)

    def unit_lower(x: Value) -> Value:
        return b.add(triangle(b, x, True, strict=True), as_dtype(b, b.eq(*rows_and_columns(b, x.type)), x.type.dtype))

    below = matmul(b, unit_lower(core), triangle(b, ct_core, True, strict=True), "ki")
    right_part = matmul(b, triangle(b, ct_core, False), triangle(b, core, False), "ik", "jk")
    lower, upper = below, right_part
    if form == "tall":
        upper = b.add(upper, b.sub(below, matmul(b, unit_lower(packed), triangle(b, ct, True, strict=True), "ki")))
    if form == "wide":
        lower = b.add(lower, b.sub(right_part, matmul(b, triangle(b, ct, False), triangle(b, packed, False), "ik", "jk")))
    inner = b.add(triangle(b, lower, True, strict=True), triangle(b, upper, False))

    def by_lower(x: Value) -> Value:
        result: Value = b.triangular_solve(core, x, lower=True, transposed=True, unit_diagonal=True)
        return result

    def by_upper(x: Value) -> Value:
        return transpose(b, b.triangular_solve(core, transpose(b, x), lower=False, transposed=False, unit_diagonal=False))

    total = by_upper(by_lower(inner))
    if form == "tall":
        outside = by_upper(triangle(b, ct, True, strict=True))
    if form == "wide":
        outside = by_lower(triangle(b, ct, False))
    if form != "square":
        total = b.add(outside, pad_block(b, b.sub(total, part(b, outside, 0, 0, k, k)), 0, 0, m, n))
    return [take_rows(b, total, b.permutation(pivots, inverse=True))]


lu = Linalg(
    name="lu", reference=_lu, pullback=_lu_rule, typed_as=_lu_type, core=(2, 2, 1, 2, 1, 0), body=_lu_body,
    small=small_matrices.lu, scratch=_lu_scratch,
)  # fmt: skip
"""Results: U, with the part of L below its diagonal of ones, such that L U is the matrix with its rows exchanged; ``pivots``:
row i was exchanged with row pivots[i], in order. A square matrix is singular if the diagonal of U has a zero. Param
``form``: "tall", "square" or "wide"."""


# permutation: the source row of each row, from pivots


def _permutation(pivots: Any, inverse: bool = False) -> Any:
    perm = np.empty_like(pivots)
    for index in np.ndindex(pivots.shape[:-1]):
        order = list(range(pivots.shape[-1]))
        for i in reversed(range(len(order))) if inverse else range(len(order)):
            k = pivots[index][i]
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
    step = b.open("i")
    i = b.sub(b.sub(rows, b.const(1, I64)), step) if params["inverse"] else step
    k = b.here("load", pivots, i)
    own, other = b.here("load", perm, i), b.here("load", perm, k)
    b.here("store", own, perm, k)
    b.here("store", other, perm, i)
    b.close_ordered(step, rows)


permutation = Linalg(
    name="permutation", reference=_permutation, nondifferentiable="a position is an integer", typed_as=_permutation_type,
    core=(1, 1), body=_permutation_body, small=small_matrices.permutation,
)  # fmt: skip
"""The permutation of pivots: row i of the exchanged rows is row perm[i] of the matrix; with ``inverse``, row i of the matrix
is row perm[i] of the exchanged rows. The pivots must be in range."""


# solve and slogdet, of a with its factors


def _factors(types: Sequence[Type], count: int, same: Same) -> list[ArrayType]:
    """Check the operand types and return those of a, packed, and a matrix if ``count`` is 3; pivots come last."""
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
    perm = _permutation(pivots)[..., None]
    if not transposed:
        x = _triangular_solve(packed, np.take_along_axis(b, perm, -2), True, False, True)
        return _triangular_solve(packed, x, False, False, False)
    x = _triangular_solve(packed, b, False, True, False)
    return np.take_along_axis(_triangular_solve(packed, x, True, True, True), np.argsort(perm, -2), -2)


def _solve_body(
    b: Any, params: Mapping[str, Any], a: Value, packed: Value, right_sides: Value, pivots: Value, x: Value
) -> None:  # fmt: skip
    transposed, routine = params["transposed"], "trsv" if x.type.shape[1] == 1 else "trsm"
    copy(b, right_sides, x)
    if not transposed:
        _exchange_rows(b, x, pivots, inverse=False)
    for lower in (False, True) if transposed else (True, False):
        b.here(routine, packed, x, lower=lower, transposed=transposed, unit_diagonal=lower)
    if transposed:
        _exchange_rows(b, x, pivots, inverse=True)


def _exchange_rows(b: Any, x: Value, pivots: Value, inverse: bool) -> None:
    """Emit a loop that exchanges each row with its pivot row; ``inverse``: from the last row to the first."""
    rows = length(b, x, 0)
    step = b.open("i")
    i = b.sub(b.sub(rows, b.const(1, I64)), step) if inverse else step
    k = b.here("load", pivots, i)
    j = b.open("j")
    row_i, row_k = item(b, x, i, j), item(b, x, k, j)
    put(b, row_i, x, k, j)
    put(b, row_k, x, i, j)
    b.close(j, length(b, x, 1))
    b.close_ordered(step, rows)


def _solve_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    a, packed, _, pivots = inputs
    transposed = params["transposed"]
    ct = b.solve(a, packed, cts[0], pivots, transposed=not transposed)
    if not wants[0]:
        return [ZERO, ZERO, ct, ZERO]
    return [_minus_product(b, outputs[0], ct) if transposed else _minus_product(b, ct, outputs[0]), ZERO, ct, ZERO]


solve = Linalg(
    name="solve", reference=_solve, pullback=_solve_rule, typed_as=_solve_by_factors_type, core=(2, 2, 2, 1, 2), body=_solve_body,
    small=small_matrices.solve,
)  # fmt: skip
"""x with a x = b, or with ``transposed`` a^T x = b; operands a, packed, b, pivots."""


def _slogdet_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a, _ = _factors(types, 2, same)
    sign = a.with_shape(a.shape[:-2])
    return sign, sign.with_dtype(real_of(a.dtype))


def _slogdet(a: Any, packed: Any, pivots: Any) -> tuple[Any, Any]:
    values = np.diagonal(packed, axis1=-2, axis2=-1)
    with np.errstate(all="ignore"):
        signs = np.where(np.isnan(values), 1, np.sign(values)) * np.where(pivots == np.arange(a.shape[-1]), 1, -1)
        size = np.asarray(np.sum(np.log(np.abs(values)), axis=-1))
    return np.asarray(np.prod(signs, axis=-1), a.dtype), size.astype(values.real.dtype)


def _compose_slogdet(b: Any, a: Value, packed: Value, pivots: Value) -> tuple[Value, ...]:
    values = diagonal(b, packed)
    size, last = b.abs(values), (values.type.rank - 1,)
    zero, one = b.zeros_like(values), b.full(1, values.type)
    if values.type.dtype.kind == "c":
        sign = b.select(b.gt(size, b.zeros_like(size)), b.div(values, as_dtype(b, size, values.type.dtype)), zero)
    else:
        sign = b.select(b.lt(values, zero), b.neg(one), b.select(b.eq(values, zero), zero, one))
    is_kept = b.eq(pivots, position(b, pivots.type.shape, *last))
    return b.prod(b.select(is_kept, sign, b.neg(sign)), axes=last), b.sum(b.log(size), axes=last)


def _slogdet_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the gradient, from d(log det a) = tr(a^-1 da): its real part is the change of the logarithm; its imaginary part
    rotates the sign, which is constant for a real matrix. Where the cotangent is zero, the inverse is not used, so a
    singular matrix gives zero."""
    a, packed, pivots = inputs
    size = cts[1]
    if a.type.dtype.kind == "c":
        rotation = b.zeros_like(outputs[1]) if cts[0] is ZERO else b.imag(b.mul(cts[0], outputs[0]))
        size = b.complex(b.zeros_like(outputs[1]) if size is ZERO else size, rotation)
    if size is ZERO:
        return [ZERO] * 3
    ct, zero = spread(b, size, a.type), b.zeros_like(a)
    inverse = b.solve(a, packed, identity(b, a.type), pivots, transposed=True)
    return [b.select(b.eq(ct, zero), zero, b.mul(ct, inverse)), ZERO, ZERO]


slogdet = Composed(name="slogdet", reference=_slogdet, pullback=_slogdet_rule, typed_as=_slogdet_type, compose=_compose_slogdet)
"""The sign of the determinant (0 if singular) and the logarithm of its absolute value; operands a, packed, pivots."""


def _det_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return _slogdet_type(types, params, same)[:1]


def _det(a: Any, packed: Any, pivots: Any) -> Any:
    sign, size = _slogdet(a, packed, pivots)
    with np.errstate(all="ignore"):
        return np.asarray(sign * np.exp(size))


def _value(b: Any, sign: Value, size: Value) -> Value:
    value: Value = b.mul(sign, as_dtype(b, b.exp(size), sign.type.dtype))
    return value


def _compose_det(b: Any, a: Value, packed: Value, pivots: Value) -> tuple[Value, ...]:
    return (_value(b, *_compose_slogdet(b, a, packed, pivots)),)


def _det_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    a, packed, pivots = inputs
    return [b.mul(spread(b, cts[0], a.type), b.cofactors(a, packed, pivots)), ZERO, ZERO]


def _compose_cofactors(b: Any, a: Value, packed: Value, pivots: Value) -> tuple[Value, ...]:
    """Emit the determinant times the inverse. Cofactors are polynomials in the elements, so a zero pivot, for which there is
    no inverse, is replaced by a number too small to change them."""
    sizes = b.abs(diagonal(b, packed))
    largest = b.max(sizes, axes=(sizes.type.rank - 1,))
    least = b.select(
        b.eq(largest, b.zeros_like(largest)), b.full(1e-30, largest.type), b.mul(largest, b.full(2.0**-60, largest.type))
    )
    is_pivot = b.eq(*rows_and_columns(b, a.type))
    is_zero = b.bitand(is_pivot, b.eq(packed, b.zeros_like(packed)))
    regular = b.select(is_zero, spread(b, as_dtype(b, least, a.type.dtype), a.type), packed)
    value = _value(b, *_compose_slogdet(b, a, regular, pivots))
    inverse = b.solve(a, regular, identity(b, a.type), pivots, transposed=True)
    return (b.mul(spread(b, value, a.type), inverse),)


def _cofactors_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the gradient. In the bases of a singular value decomposition a is diagonal: a cofactor on the diagonal depends on
    the other diagonal elements, one off it on the transposed element, each by the product of the singular values without
    two."""
    a = inputs[0]
    n = a.type.shape[-1]
    u, s, vt, _ = b.svd(a, form="square", full=False, work=(_square_times(12, n), _square_times(17, n)))
    unitary_det = b.mul(*(b.det(x, *b.lu(x, form="square")) for x in (u, vt)))
    pairs, left, right = _without_pairs(b, s, a.type), conj(b, u), conj(b, vt)
    inner = matmul(b, matmul(b, left, b.mul(spread(b, unitary_det, a.type), cts[0]), "ki"), right, "ik", "jk")
    diagonals = columns_of(b, b.sum(b.mul(columns_of(b, diagonal(b, inner), a.type), pairs), axes=(a.type.rank - 1,)), a.type)
    core = b.select(b.eq(*rows_and_columns(b, a.type)), diagonals, b.neg(b.mul(transpose(b, inner), pairs)))
    return [matmul(b, matmul(b, left, core), right), ZERO, ZERO]


def _square_times(factor: int, n: Extent) -> Extent:
    """Return ``factor`` n^2 of an extent, which may be symbolic: at least the work size that LAPACK's documentation requires."""
    return factor * n * n if isinstance(n, int) else f"{n}*{n}*{factor}"


def _without_pairs(b: Any, s: Value, t: Any) -> Value:
    """Return, for each pair of descending values, the product of all others; 0 on the diagonal. The last two are not divided
    out: if any other value is 0, so are these two, and every product."""
    last = s.type.rank - 1
    one, zero = b.full(1, s.type), b.zeros_like(s)
    index_from_end = b.flip(position(b, s.type.shape, last), axes=(last,))
    is_least, is_second = (b.eq(index_from_end, b.full(k, index_from_end.type)) for k in (0, 1))
    is_end = b.bitor(is_least, is_second)
    inverse = b.select(is_end, one, b.div(one, b.select(b.bitor(is_end, b.eq(s, zero)), one, s)))
    large_product = b.prod(b.select(is_end, one, s), axes=(last,))
    real = t.with_dtype(s.type.dtype)
    products = b.mul(spread(b, large_product, real), b.mul(rows_of(b, inverse, real), columns_of(b, inverse, real)))
    for chosen in (is_least, is_second):
        value = spread(b, b.prod(b.select(chosen, s, one), axes=(last,)), real)
        is_left_out = b.bitor(rows_of(b, chosen, t.with_dtype(BOOL)), columns_of(b, chosen, t.with_dtype(BOOL)))
        products = b.mul(products, b.select(is_left_out, b.full(1, real), value))
    on_diagonal = b.eq(*rows_and_columns(b, real))
    return as_dtype(b, b.select(on_diagonal, b.zeros_like(products), products), t.dtype)


def _cofactors_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return (_factors(types, 2, same)[0],)


def _cofactors(a: Any, packed: Any, pivots: Any) -> Any:
    u, s, vt = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
    turn = np.linalg.det(u) * np.linalg.det(vt)
    return np.asarray(turn[..., None, None] * (u.conj() * others[..., None, :]) @ vt.conj(), a.dtype)


cofactors = Composed(
    name="cofactors", reference=_cofactors, pullback=_cofactors_rule, typed_as=_cofactors_type, compose=_compose_cofactors
)  # fmt: skip
"""The derivatives of the determinant; operands a, packed, pivots."""


det = Composed(name="det", reference=_det, pullback=_det_rule, typed_as=_det_type, compose=_compose_det)
"""The determinant; operands a, packed, pivots."""
