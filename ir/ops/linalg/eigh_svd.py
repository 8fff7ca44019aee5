"""Eigendecompositions of Hermitian matrices, singular value decompositions, and functions of these; along the last two axes.

They are LAPACK's, by the routines that NumPy calls and in its memory order, so that signs equal NumPy's. Gradients: M. Giles,
"An extended collection of matrix derivative results for forward and reverse mode algorithmic differentiation" (2008), section
3.1; J. Townsend, "Differentiating the singular value decomposition" (2016); for complex vectors Z. Wan and S. Zhang,
"Automatic differentiation for complex valued SVD" (2019).

Where two eigenvalues or singular values are equal, their vectors are not determined: a gradient that depends on them is NaN
(``gaps``). Each complex vector is determined up to a phase; the gradient is right for functions that do not depend on the
phases. Likewise the vectors beyond the thin decomposition are determined up to a rotation among them. The param ``work`` has
the sizes of LAPACK's work arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Same, resolve
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType, Extent, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import (
    I32,
    Composed,
    Linalg,
    adjoint,
    as_dtype,
    by_columns,
    columns_of,
    conj,
    conjugating,
    diagonal,
    each,
    hermitian,
    identity,
    matmul,
    matrices,
    part,
    real_of,
    rectangular,
    rows_of,
    same_form,
    store_transposed,
    x_yh,
    xh_y,
)
from pullback.ir.ops.library.lapack import gesdd, syevd
from pullback.ir.ops.library.routines import LETTERS
from pullback.ir.ops.linalg.spectral_gaps import equal, over_gaps, real_type, skew, unless_unknown
from pullback.ir.shapes.extents import by_value_in, product
from pullback.ir.shapes.symbolic import lifted


@dataclass(frozen=True, eq=False, kw_only=True)
class Decomposition(Linalg):
    """A LAPACK decomposition with work arrays. ``sizes(letter, params, *extents)`` returns their sizes, for the letter of the
    dtype and constant extents; ``bounds(*extents)`` upper bounds of the sizes that LAPACK's documentation requires, for extents
    by value."""

    sizes: Callable[..., tuple[int, ...]]
    bounds: Callable[[Extent, Extent], tuple[Extent, ...]]
    implied: tuple[str, ...] = ("work",)

    def settle(self, types: Sequence[Type], params: dict[str, Any]) -> dict[str, Any]:
        a = types[0]
        if "work" in params or not isinstance(a, ArrayType):
            return params
        if by_value_in(a.shape[-2:]):
            return {**params, "work": self.bounds(*a.shape[-2:])}
        if not all(isinstance(e, int) for e in a.shape[-2:]):
            return params
        letter = LETTERS[a.dtype.numpy.char]
        return {**params, "work": lifted(partial(self._work, letter, params), *a.shape[-2:])}

    def _work(self, letter: str, params: Mapping[str, Any], *extents: int) -> tuple[int, ...]:
        return tuple(max(int(n), 1) for n in self.sizes(letter, params, *extents))


# eigh: the eigendecomposition of a Hermitian matrix, from one triangle


def _eigh(a: Any, lower: bool, work: Any = None) -> tuple[Any, Any, Any]:
    rows = by_columns(a)
    values, info = np.empty(a.shape[:-1], a.real.dtype), np.zeros(a.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        syevd.function(rows[index], values[index], None, None, None, info[(*index, ...)], lower=lower)
    return values, by_columns(rows), info


def _eigh_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return ArrayType(real_of(a.dtype), a.shape[:-1]), a, ArrayType(I32, a.shape[:-2])


def _eigh_sizes(letter: str, params: Mapping[str, Any], rows: int, columns: int) -> tuple[int, ...]:
    if letter in "sd":
        floats, integers, _ = resolve(f"scipy.linalg.lapack.{letter}syevd_lwork")(max(rows, 1), lower=True)
        return floats, 1, integers
    work, integers, real, _ = resolve(f"scipy.linalg.lapack.{letter}heevd_lwork")(max(rows, 1), lower=True)
    return int(work.real), real, integers


def _eigh_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    work, real, integers = params["work"]
    return (
        RefType(a.dtype, a.shape[-2:]),
        RefType(a.dtype, (work,)),
        RefType(real_of(a.dtype), (real,)),
        RefType(I32, (integers,)),
    )


def _eigh_body(b: Any, params: Mapping[str, Any], a: Value, values: Value, vectors: Value, info: Value, *scratch: Value) -> None:
    rows, work, real, integers = scratch
    store_transposed(b, a, rows)
    b.here("syevd", rows, values, work, real, integers, info, lower=params["lower"])
    store_transposed(b, rows, vectors)


def _eigh_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    values, vectors, _ = outputs
    inner = b.full(0, vectors.type)
    if cts[1] is not ZERO:
        real = real_type(vectors.type)
        product, is_equal = xh_y(b, vectors, cts[1]), equal(b, values, real)
        half = b.mul(skew(b, product), b.full(0.5, product.type))
        inner = over_gaps(b, b.sub(columns_of(b, values, real), rows_of(b, values, real)), is_equal, half, product)
        if cts[0] is not ZERO:
            inner = unless_unknown(b, inner, is_equal, product, cts[0])
    if cts[0] is not ZERO:
        inner = b.add(inner, b.mul(identity(b, vectors.type), columns_of(b, cts[0], vectors.type)))
    return [hermitian(b, x_yh(b, matmul(b, vectors, inner), vectors))]


eigh = Decomposition(
    name="eigh", reference=_eigh, pullback=conjugating(_eigh_rule), typed_as=_eigh_type, core=(2, 1, 2, 0, 2, 1, 1, 1),
    body=_eigh_body, scratch=_eigh_scratch, extents=("work",), sizes=_eigh_sizes,
    bounds=lambda n, _: (product((n, n, 9)), product((n, n, 8)), product((n, 8))),
)  # fmt: skip
"""Results: the eigenvalues, ascending; the eigenvectors as columns; and, of i32, 0 where the computation converged. Param
``lower``: the lower triangle is read, else the upper one."""


# svd: the singular value decomposition, thin or full


def _svd(a: Any, form: str, full: bool, work: Any = None) -> tuple[Any, Any, Any, Any]:
    *batch, m, n = a.shape
    k = min(m, n)
    columns, info = by_columns(a), np.zeros(batch, np.int32)
    values = np.empty((*batch, k), a.real.dtype)
    left, right = (np.empty((*batch, *shape), a.dtype) for shape in ((m if full else k, m), (n, n if full else k)))
    left[...], right[...] = np.eye(*left.shape[-2:]), np.eye(*right.shape[-2:])
    for index in np.ndindex(info.shape):
        gesdd.function(
            columns[index], values[index], left[index], right[index], None, None, None, info[(*index, ...)], full=full
        )  # fmt: skip
    return np.swapaxes(left, -1, -2), values, np.swapaxes(right, -1, -2), info


def _svd_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = rectangular(types)
    *batch, m, n = a.shape
    k = same_form(a, params["form"], same)
    rows, columns = (m, n) if params["full"] else (k, k)
    u, vt = a.with_shape((*batch, m, rows)), a.with_shape((*batch, columns, n))
    return u, ArrayType(real_of(a.dtype), (*batch, k)), vt, ArrayType(I32, tuple(batch))


def _svd_sizes(letter: str, params: Mapping[str, Any], m: int, n: int) -> tuple[int, ...]:
    """Return the sizes of the work arrays; the real one of complex routines has at least the size that LAPACK's documentation
    requires."""
    work = resolve(f"scipy.linalg.lapack.{letter}gesdd_lwork")(max(m, 1), max(n, 1), full_matrices=params["full"])
    least, most = min(m, n), max(m, n)
    return int(work[0].real), 1 if letter in "sd" else least * (5 * least + 7 + 2 * most + 2 * least + 1)


def _svd_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    m, n = a.shape[-2:]
    k = m if params["form"] == "wide" else n
    work, real = params["work"]
    rows, columns = (m, n) if params["full"] else (k, k)
    buffers = [RefType(a.dtype, shape) for shape in ((n, m), (rows, m), (n, columns), (work,))]
    return (*buffers, RefType(real_of(a.dtype), (real,)), RefType(I32, (8, k)))


def _svd_body(
    b: Any, params: Mapping[str, Any], a: Value, u: Value, values: Value, vt: Value, info: Value, *scratch: Value
) -> None:
    """Emit the call of gesdd. For an empty matrix there are no values, and full vectors are those of the identity."""
    columns, left, right, work, real, integers = scratch
    store_transposed(b, a, columns)
    if params["full"]:
        for ref in (left, right):
            each(b, ref, lambda i, j: b.cast(b.eq(i, j), dtype=real.type.dtype))
    b.here("gesdd", columns, values, left, right, work, real, integers, info, full=params["full"])
    store_transposed(b, left, u)
    store_transposed(b, right, vt)


def first_columns_ct(b: Any, full: Value, thin: Value, ct: Value, k: Extent) -> Value:
    """Return the cotangent of the first k of orthonormal columns, including the contribution of the other columns: these
    rotate only against the first ones, so that d(others) = -thin d(thin)^H others."""
    m = full.type.shape[-2]
    thin_ct = part(b, ct, 0, 0, m, k)
    rotation = b.sub(matmul(b, full, xh_y(b, ct, thin)), matmul(b, thin, xh_y(b, thin_ct, thin)))
    result: Value = b.sub(thin_ct, rotation)
    return result


def _svd_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    u, s, vt, _ = outputs
    ct_u, ct_s, ct_vt, _ = cts
    form = params["form"]
    if params["full"] and form != "square":
        m, n = inputs[0].type.shape[-2:]
        if form == "tall":
            thin = part(b, u, 0, 0, m, n)
            u, ct_u = thin, ZERO if ct_u is ZERO else first_columns_ct(b, u, thin, ct_u, n)
        else:
            full, thin = adjoint(b, vt), adjoint(b, part(b, vt, 0, 0, m, n))
            vt = part(b, vt, 0, 0, m, n)
            ct_vt = ZERO if ct_vt is ZERO else adjoint(b, first_columns_ct(b, full, thin, adjoint(b, ct_vt), m))
    square = u.type.with_shape((*s.type.shape, s.type.shape[-1]))
    inner = b.full(0, square)
    if ct_s is not ZERO:
        inner = b.mul(identity(b, square), columns_of(b, ct_s, square))
    outer_terms: list[Value] = []
    products: list[Value] = []
    sides: list[Value] = []
    if ct_u is not ZERO:
        product = xh_y(b, u, ct_u)
        products.append(product)
        sides.append(product)
        if product.type.dtype.kind == "c":
            rotation = b.imag(diagonal(b, product))
            phases = b.complex(b.zeros_like(rotation), b.div(rotation, s))
            inner = b.add(inner, b.mul(identity(b, square), columns_of(b, phases, square)))
        if form == "tall":
            outside = b.div(b.sub(ct_u, matmul(b, u, product)), columns_of(b, s, u.type))
            outer_terms.append(matmul(b, outside, vt))
    if ct_vt is not ZERO:
        product = x_yh(b, vt, ct_vt)
        products.append(product)
        sides.append(b.neg(product))
        if form == "wide":
            outside = b.div(b.sub(ct_vt, xh_y(b, product, vt)), rows_of(b, s, vt.type))
            outer_terms.append(matmul(b, u, outside))
    if products:
        inner = b.add(inner, _between(b, s, square, products, sides, ct_s))
    total = matmul(b, matmul(b, u, inner), vt)
    for term in outer_terms:
        total = b.add(total, term)
    return [total]


def _between(b: Any, s: Value, t: ArrayType, products: Sequence[Value], sides: Sequence[Value], ct_s: Any) -> Value:
    """Return the contribution of pairs of different singular values: half of the sum of the skew parts of u^H ct_u and v^H
    ct_v over s_j - s_i, plus half of their difference over s_i + s_j. ``sides``: the products with the signs of the
    difference."""
    real = real_type(t)
    s_j, s_i, is_equal = columns_of(b, s, real), rows_of(b, s, real), equal(b, s, real)
    half = b.full(0.5, t)
    total, difference = (b.mul(skew(b, b.add(*terms) if len(terms) == 2 else terms[0]), half) for terms in (products, sides))
    magnitude = products[0] if len(products) == 1 else b.add(*(as_dtype(b, b.abs(p), t.dtype) for p in products))
    result = over_gaps(b, b.sub(s_j, s_i), is_equal, total, magnitude)
    result = b.add(result, over_gaps(b, b.add(s_j, s_i), is_equal, difference, magnitude))
    return result if ct_s is ZERO else unless_unknown(b, result, is_equal, magnitude, ct_s)


svd = Decomposition(
    name="svd", reference=_svd, pullback=conjugating(_svd_rule), typed_as=_svd_type, core=(2, 2, 1, 2, 0, 2, 2, 2, 1, 1, 2),
    body=_svd_body, scratch=_svd_scratch, extents=("work",), sizes=_svd_sizes,
    bounds=lambda m, n: (product((m, n, 12)), product((m, n, 12))),
)  # fmt: skip
"""Results: u, the singular values, descending, the adjoint of v; and, of i32, 0 where the computation converged. Params
``form``: "tall", "square" or "wide"; ``full``: u and v are square."""


# pinv and unitary, given the thin singular value decomposition


def _given_svd(count: int, types: Sequence[Type], params: Mapping[str, Any], same: Same) -> ArrayType:
    """Check the operands and return the type of a; further operands are u, s, vt and, if ``count`` is 5, one scalar for each
    value."""
    if len(types) != count:
        raise TypeError("takes a, u, s, vt" + (" and the inverse values" if count == 5 else ""))
    a = rectangular(types[:1])
    u, s, vt, _ = _svd_type((a,), {**params, "full": False}, same)
    for t, e in zip(types[1:], (u, s, vt, s), strict=False):
        if not isinstance(t, ArrayType) or t.dtype is not e.dtype or t.rank != e.rank:
            raise TypeError(f"takes {e} where there is {t}")
        for extent, expected in zip(t.shape, e.shape, strict=True):
            same(extent, expected)
    return a


def _pinv_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = _given_svd(5, types, params, same)
    return (a.with_shape((*a.shape[:-2], a.shape[-1], a.shape[-2])),)


def _pinv(a: Any, u: Any, s: Any, vt: Any, inverse: Any, form: str, has_cutoff: bool) -> Any:
    return np.swapaxes(vt, -1, -2).conj() @ (inverse[..., None] * np.swapaxes(u, -1, -2).conj())


def _compose_pinv(
    b: Any, a: Value, u: Value, s: Value, vt: Value, inverse: Value, form: str, has_cutoff: bool
) -> tuple[Value, ...]:
    scaled = b.mul(columns_of(b, inverse, u.type), u)
    return (matmul(b, conj(b, vt), conj(b, scaled), "ki", "jk"),)


def _pinv_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    rule = _cut_pinv_rule if params["has_cutoff"] else _whole_pinv_rule
    return [rule(b, inputs, outputs[0], cts[0], params["form"]), ZERO, ZERO, ZERO, ZERO]


def _whole_pinv_rule(b: Any, inputs: Any, p: Value, ct: Value, form: str) -> Value:
    """Return the gradient of the pseudo-inverse without cutoff: G. Golub and V. Pereyra, "The differentiation of
    pseudo-inverses and nonlinear least squares problems whose variables separate" (1973), equation 4.12. It reads the
    matrix and its pseudo-inverse alone, so gradients of no order need singular vectors."""
    a, adjoint_ct = inputs[0], adjoint(b, ct)
    total = b.neg(x_yh(b, xh_y(b, p, ct), p))
    beyond_columns = b.sub(adjoint_ct, matmul(b, a, matmul(b, p, adjoint_ct)))
    beyond_rows = b.sub(adjoint_ct, matmul(b, matmul(b, adjoint_ct, p), a))
    total = b.add(total, x_yh(b, matmul(b, beyond_columns, p), p))
    result: Value = b.add(total, xh_y(b, p, matmul(b, p, beyond_rows)))
    return result


def _cut_pinv_rule(b: Any, inputs: Any, p: Value, ct: Value, form: str) -> Value:
    """Return the gradient of the pseudo-inverse with cutoff. In the bases u and v the adjoint p^H = u g v^H changes by divided
    differences: (g_i - g_j) / (s_i - s_j) for the Hermitian part of the change of a, (g_i + g_j) / (s_i + s_j) for the
    other part. Neither is singular: where both values are inverted they are -g_i g_j and g_i g_j."""
    _, u, s, vt, g = inputs
    ct = adjoint(b, ct)
    left = xh_y(b, u, ct)
    inner = x_yh(b, left, vt)
    t = inner.type
    s_i, s_j, g_i, g_j = rows_of(b, s, t), columns_of(b, s, t), rows_of(b, g, t), columns_of(b, g, t)
    zero, half = b.zeros_like(inner), b.full(0.5, t)
    is_mixed = b.ne(b.eq(g_i, zero), b.eq(g_j, zero))
    one = b.full(1, t)
    product = b.mul(g_i, g_j)
    difference_quotient = b.div(b.sub(g_i, g_j), b.select(is_mixed, b.sub(s_i, s_j), one))
    sum_quotient = b.div(b.add(g_i, g_j), b.select(is_mixed, b.add(s_i, s_j), one))
    even = b.mul(hermitian(b, inner), b.select(is_mixed, difference_quotient, b.neg(product)))
    odd = b.mul(b.mul(b.sub(inner, adjoint(b, inner)), half), b.select(is_mixed, sum_quotient, product))
    total = matmul(b, matmul(b, u, b.add(even, odd)), vt)
    squares = b.mul(g, g)
    if form == "tall":
        outer = b.sub(x_yh(b, ct, vt), matmul(b, u, inner))
        total = b.add(total, matmul(b, b.mul(outer, columns_of(b, squares, u.type)), vt))
    if form == "wide":
        outer = b.sub(left, matmul(b, inner, vt))
        total = b.add(total, matmul(b, u, b.mul(rows_of(b, squares, vt.type), outer)))
    return total


pinv = Composed(
    name="pinv", reference=_pinv, pullback=conjugating(_pinv_rule), typed_as=_pinv_type, compose=_compose_pinv
)  # fmt: skip
"""The pseudo-inverse; operands a, u, s, vt, and for each singular value its inverse, or 0 if it is below the cutoff. Params:
``form`` as of ``svd``; ``has_cutoff``: values below the cutoff may be larger than rounding errors."""


def _unitary_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return (_given_svd(4, types, params, same),)


def _unitary_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the gradient of the polar factor: N. Higham, Functions of Matrices (2008), chapter 8. A change of a rotates u v^H
    by the skew part over s_i + s_j, which is singular only where the matrix is."""
    _, u, s, vt = inputs
    ct = cts[0]
    left = xh_y(b, u, ct)
    inner = x_yh(b, left, vt)
    sums = b.add(rows_of(b, s, inner.type), columns_of(b, s, inner.type))
    total = matmul(b, matmul(b, u, b.div(b.sub(inner, adjoint(b, inner)), sums)), vt)
    if params["form"] == "tall":
        outer = b.sub(x_yh(b, ct, vt), matmul(b, u, inner))
        total = b.add(total, matmul(b, b.div(outer, columns_of(b, s, u.type)), vt))
    if params["form"] == "wide":
        outer = b.sub(left, matmul(b, inner, vt))
        total = b.add(total, matmul(b, u, b.div(outer, rows_of(b, s, vt.type))))
    return [total, ZERO, ZERO, ZERO]


unitary = Composed(
    name="unitary", reference=lambda a, u, s, vt, form: u @ vt, pullback=conjugating(_unitary_rule), typed_as=_unitary_type,
    compose=lambda b, a, u, s, vt, form: (matmul(b, u, vt),),
)  # fmt: skip
"""The factor u v^H of the polar decomposition; operands a, u, s, vt; ``form`` as of ``svd``."""
