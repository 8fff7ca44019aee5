"""Decompositions: eigenvalues of symmetric matrices, singular values, and orthogonal factors of the last two axes.

They are LAPACK's, by the routines that NumPy calls and in its order of memory, so that signs are those of NumPy. Gradients:
M. Giles, "An extended collection of matrix derivative results for forward and reverse mode algorithmic differentiation" (2008),
section 3.1; J. Townsend, "Differentiating the singular value decomposition" (2016); S. Walter and L. Lehmann, "Algorithmic
differentiation of linear algebra functions" (2010).

Where two eigenvalues or singular values are equal, the vectors between them are not determined: a gradient that asks for theirs
is NaN. The param ``work`` has the sizes of LAPACK's work arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.op import ZERO, Contribution, Op, Same, resolve
from pullback.ir.ops.library import geqrf, gesdd, orgqr, syevd
from pullback.ir.ops.linalg import I32, Composed, Linalg, each, identity, matmul, matrices, rows_and_columns, symmetric, turned
from pullback.ir.structure import Value
from pullback.ir.types import F64, ArrayType, Extent, RefType, Type


@dataclass(frozen=True, eq=False, kw_only=True)
class Decomposition(Linalg):
    """``sizes(letter, *extents)`` of the work arrays, for the letter of the dtype and extents that are numbers."""

    sizes: Callable[..., tuple[int, ...]]

    def settle(self, types: Sequence[Type], params: dict[str, Any]) -> dict[str, Any]:
        (a,) = types
        if "work" in params or not isinstance(a, ArrayType) or not all(isinstance(e, int) for e in a.shape[-2:]):
            return params
        letter = "d" if a.dtype is F64 else "s"
        return {**params, "work": tuple(max(int(n), 1) for n in self.sizes(letter, *a.shape[-2:]))}


def _turn(b: Any, source: Value, target: Value) -> None:
    """Store the transpose."""
    each(b, target, lambda i, j: b.here("load", source, j, i))


def _by_columns(a: Any) -> Any:
    return np.array(np.swapaxes(a, -1, -2), order="C")


def _columns(b: Any, x: Value, t: Any) -> Value:
    """Element j of a vector at each place of column j, for matrices of a type."""
    found: Value = b.broadcast(x, axes=(t.rank - 2,), shape=t.shape)
    return found


def _rows(b: Any, x: Value, t: Any) -> Value:
    found: Value = b.broadcast(x, axes=(t.rank - 1,), shape=t.shape)
    return found


def _off_diagonal(b: Any, x: Value) -> Value:
    """1 / x off the diagonal, 0 on it."""
    on_diagonal = b.eq(*rows_and_columns(b, x.type))
    one = b.full(1, x.type)
    found: Value = b.select(on_diagonal, b.zeros_like(x), b.div(one, b.select(on_diagonal, one, x)))
    return found


# eigh: of a symmetric matrix, from one triangle


def _eigh(a: Any, lower: bool, work: Any = None) -> tuple[Any, Any, Any]:
    rows = _by_columns(a)
    values, info = np.empty(a.shape[:-1], a.dtype), np.zeros(a.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        syevd.function(rows[index], values[index], None, None, info[(*index, ...)], lower=lower)
    return values, np.array(np.swapaxes(rows, -1, -2), order="C"), info


def _eigh_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return a.with_shape(a.shape[:-1]), a, ArrayType(I32, a.shape[:-2])


def _eigh_sizes(letter: str, rows: int, columns: int) -> tuple[int, ...]:
    return tuple(resolve(f"scipy.linalg.lapack.{letter}syevd_lwork")(max(rows, 1), lower=True)[:2])


def _eigh_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    floats, integers = params["work"]
    return RefType(a.dtype, a.shape[-2:]), RefType(a.dtype, (floats,)), RefType(I32, (integers,))


def _eigh_body(b: Any, params: Mapping[str, Any], a: Value, values: Value, vectors: Value, info: Value, *scratch: Value) -> None:
    rows, work, integers = scratch
    _turn(b, a, rows)
    b.here("syevd", rows, values, work, integers, info, lower=params["lower"])
    _turn(b, rows, vectors)


def _eigh_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    values, vectors, _ = outputs
    inner = b.full(0, vectors.type)
    if cts[1] is not ZERO:
        gaps = b.sub(_columns(b, values, vectors.type), _rows(b, values, vectors.type))
        inner = b.mul(_off_diagonal(b, gaps), matmul(b, vectors, cts[1], "ki"))
    if cts[0] is not ZERO:
        inner = b.add(inner, b.mul(identity(b, vectors.type), _columns(b, cts[0], vectors.type)))
    return [symmetric(b, matmul(b, matmul(b, vectors, inner), vectors, "ik", "jk"))]


eigh = Decomposition(
    name="eigh", reference=_eigh, pullback=_eigh_rule, typed_as=_eigh_type, core=(2, 1, 2, 0, 2, 1, 1), body=_eigh_body,
    scratch=_eigh_scratch, extents=("work",), sizes=_eigh_sizes,
)  # fmt: skip
"""Results: the eigenvalues, ascending; the eigenvectors, a column each; and, of i32, 0 where they were found. Param
``lower``: which triangle is read."""


# svd: the thin singular value decomposition


def _svd(a: Any, form: str, work: Any = None) -> tuple[Any, Any, Any, Any]:
    *batch, m, n = a.shape
    k = min(m, n)
    given, info = _by_columns(a), np.zeros(batch, np.int32)
    values, left, right = (np.empty((*batch, *shape), a.dtype) for shape in ((k,), (k, m), (n, k)))
    for index in np.ndindex(info.shape):
        gesdd.function(given[index], values[index], left[index], right[index], None, None, info[(*index, ...)])
    return np.swapaxes(left, -1, -2), values, np.swapaxes(right, -1, -2), info


def _svd_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = rectangular(types)
    *batch, m, n = a.shape
    form, known = params["form"], isinstance(m, int) and isinstance(n, int)
    if form == "square":
        same(m, n)
    elif known and form != ("wide" if int(m) < int(n) else "tall"):
        raise TypeError(f"the matrices are not {form}")
    k = m if form == "wide" else n
    shapes: list[tuple[Extent, ...]] = [(*batch, m, k), (*batch, k), (*batch, k, n)]
    return (*(a.with_shape(shape) for shape in shapes), ArrayType(I32, tuple(batch)))


def rectangular(types: Sequence[Type]) -> ArrayType:
    """The one operand, matrices of a float dtype. Raises TypeError."""
    (a,) = types
    if not isinstance(a, ArrayType) or a.rank < 2 or a.dtype.name not in ("f32", "f64"):
        raise TypeError("takes matrices of f32 or of f64")
    return a


def _svd_sizes(letter: str, m: int, n: int) -> tuple[int, ...]:
    return (resolve(f"scipy.linalg.lapack.{letter}gesdd_lwork")(max(m, 1), max(n, 1), full_matrices=False)[0],)


def _svd_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    m, n = a.shape[-2:]
    k = m if params["form"] == "wide" else n
    floats = [RefType(a.dtype, shape) for shape in ((n, m), (k, m), (n, k), params["work"])]
    return (*floats, RefType(I32, (8, k)))


def _svd_body(
    b: Any, params: Mapping[str, Any], a: Value, u: Value, values: Value, vt: Value, info: Value, *scratch: Value
) -> None:
    given, left, right, work, integers = scratch
    _turn(b, a, given)
    b.here("gesdd", given, values, left, right, work, integers, info)
    _turn(b, left, u)
    _turn(b, right, vt)


def _svd_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    u, s, vt, _ = outputs
    ct_u, ct_s, ct_vt, _ = cts
    square = s.type.with_shape((*s.type.shape, s.type.shape[-1]))
    along, across = _columns(b, s, square), _rows(b, s, square)
    gaps = _off_diagonal(b, b.mul(b.sub(along, across), b.add(along, across)))
    inner = b.full(0, square)
    if ct_s is not ZERO:
        inner = b.mul(identity(b, square), _columns(b, ct_s, square))
    beside: list[Value] = []
    if ct_u is not ZERO:
        product = matmul(b, u, ct_u, "ki")
        inner = b.add(inner, b.mul(b.mul(gaps, b.sub(product, turned(b, product))), along))
        if params["form"] == "tall":
            outside = b.div(b.sub(ct_u, matmul(b, u, product)), _columns(b, s, u.type))
            beside.append(matmul(b, outside, vt))
    if ct_vt is not ZERO:
        product = matmul(b, vt, ct_vt, "ik", "jk")
        inner = b.add(inner, b.mul(b.mul(gaps, b.sub(product, turned(b, product))), across))
        if params["form"] == "wide":
            outside = b.div(b.sub(ct_vt, matmul(b, turned(b, product), vt)), _rows(b, s, vt.type))
            beside.append(matmul(b, u, outside))
    total = matmul(b, matmul(b, u, inner), vt)
    for part in beside:
        total = b.add(total, part)
    return [total]


svd = Decomposition(
    name="svd", reference=_svd, pullback=_svd_rule, typed_as=_svd_type, core=(2, 2, 1, 2, 0, 2, 2, 2, 1, 2), body=_svd_body,
    scratch=_svd_scratch, extents=("work",), sizes=_svd_sizes,
)  # fmt: skip
"""Results: u, the singular values, descending, the transpose of v; and, of i32, 0 where they were found. Param ``form``: "tall",
"square" or "wide"."""


# qr: of a matrix with no fewer rows than columns


def _qr(a: Any) -> tuple[Any, Any]:
    rows = _by_columns(a)
    n = a.shape[-1]
    r = np.zeros((*a.shape[:-2], n, n), a.dtype)
    for index in np.ndindex(a.shape[:-2]):
        scales, info = np.zeros(n, a.dtype), np.zeros((), np.int32)
        geqrf.function(rows[index], scales, None, info)
        r[index] = np.triu(rows[index].T[:n])
        orgqr.function(rows[index], scales, None, info)
    return np.swapaxes(rows, -1, -2), r


def _qr_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = rectangular(types)
    *batch, m, n = a.shape
    if isinstance(m, int) and isinstance(n, int) and m < n:
        raise TypeError("takes matrices with no fewer rows than columns")
    return a, a.with_shape((*batch, n, n))


def _qr_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    m, n = a.shape[-2:]
    return RefType(a.dtype, (n, m)), RefType(a.dtype, (n,)), RefType(a.dtype, (32, n)), RefType(I32)


def _qr_body(b: Any, params: Mapping[str, Any], a: Value, q: Value, r: Value, *scratch: Value) -> None:
    rows = scratch[0]
    _turn(b, a, rows)
    b.here("geqrf", *scratch)
    zero = b.const(0, a.type.dtype)
    each(b, r, lambda i, j: b.here("select", b.le(i, j), b.here("load", rows, j, i), zero))
    b.here("orgqr", *scratch)
    _turn(b, rows, q)


def _qr_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    q, r = outputs
    ct_q, ct_r = cts
    parts = []
    if ct_r is not ZERO:
        parts.append(matmul(b, r, ct_r, "ik", "jk"))
    if ct_q is not ZERO:
        parts.append(b.neg(matmul(b, ct_q, q, "ki")))
    whole = parts[0] if len(parts) == 1 else b.add(*parts)
    row, column = rows_and_columns(b, whole.type)
    inner = matmul(b, q, b.select(b.ge(row, column), whole, turned(b, whole)))
    total = inner if ct_q is ZERO else b.add(ct_q, inner)
    solved = b.triangular_solve(r, turned(b, total), lower=False, transposed=False, unit_diagonal=False)
    return [turned(b, solved)]


qr = Linalg(
    name="qr", reference=_qr, pullback=_qr_rule, typed_as=_qr_type, core=(2, 2, 2, 2, 1, 2, 0), body=_qr_body,
    scratch=_qr_scratch,
)  # fmt: skip
"""Results: q, with orthonormal columns, and the upper triangle r."""


# pinv: the pseudo-inverse of a, given its singular value decomposition


def _pinv_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    if len(types) != 5:
        raise TypeError("takes a, u, s, vt and the inverse values")
    a = rectangular(types[:1])
    expected = _svd_type((a,), params, same)
    for t, e in zip(types[1:], (*expected[:3], expected[1]), strict=True):
        if not isinstance(t, ArrayType) or t.dtype is not a.dtype or t.rank != e.rank:
            raise TypeError(f"takes {e} where there is {t}")
        for extent, known in zip(t.shape, e.shape, strict=True):
            same(extent, known)
    return (a.with_shape((*a.shape[:-2], a.shape[-1], a.shape[-2])),)


def _pinv(a: Any, u: Any, s: Any, vt: Any, inverse: Any, form: str) -> Any:
    return np.swapaxes(vt, -1, -2) @ (inverse[..., None] * np.swapaxes(u, -1, -2))


def _compose_pinv(b: Any, a: Value, u: Value, s: Value, vt: Value, inverse: Value, form: str) -> tuple[Value, ...]:
    scaled = b.mul(_columns(b, inverse, u.type), u)
    return (matmul(b, vt, scaled, "ki", "jk"),)


def _pinv_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """In the bases u and v the transpose p^T = u g v^T moves by divided differences: with the symmetric part of what moves a by
    (g_i - g_j) / (s_i - s_j), with the other part by (g_i + g_j) / (s_i + s_j). Neither is singular: where both values are
    inverted they are -g_i g_j and g_i g_j."""
    _, u, s, vt, g = inputs
    ct = turned(b, cts[0])
    left = matmul(b, u, ct, "ki")
    inner = matmul(b, left, vt, "ik", "jk")
    t = inner.type
    s_i, s_j, g_i, g_j = _rows(b, s, t), _columns(b, s, t), _rows(b, g, t), _columns(b, g, t)
    zero, half = b.zeros_like(inner), b.full(0.5, t)
    is_mixed = b.ne(b.eq(g_i, zero), b.eq(g_j, zero))
    one = b.full(1, t)
    both = b.mul(g_i, g_j)
    apart = b.div(b.sub(g_i, g_j), b.select(is_mixed, b.sub(s_i, s_j), one))
    together = b.div(b.add(g_i, g_j), b.select(is_mixed, b.add(s_i, s_j), one))
    even = b.mul(b.mul(b.add(inner, turned(b, inner)), half), b.select(is_mixed, apart, b.neg(both)))
    odd = b.mul(b.mul(b.sub(inner, turned(b, inner)), half), b.select(is_mixed, together, both))
    total = matmul(b, matmul(b, u, b.add(even, odd)), vt)
    squares = b.mul(g, g)
    if params["form"] == "tall":
        beside = b.sub(matmul(b, ct, vt, "ik", "jk"), matmul(b, u, inner))
        total = b.add(total, matmul(b, b.mul(beside, _columns(b, squares, u.type)), vt))
    if params["form"] == "wide":
        beside = b.sub(left, matmul(b, inner, vt))
        total = b.add(total, matmul(b, u, b.mul(_rows(b, squares, vt.type), beside)))
    return [total, ZERO, ZERO, ZERO, ZERO]


pinv = Composed(name="pinv", reference=_pinv, pullback=_pinv_rule, typed_as=_pinv_type, compose=_compose_pinv)
"""Operands a, u, s, vt, and for each singular value its inverse or, where it does not count, 0; ``form`` as of ``svd``."""
