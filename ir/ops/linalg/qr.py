"""Orthogonal factors: QR with its pivots, and Hessenberg forms.

They are LAPACK's, so that signs equal NumPy's. Gradients: S. Walter and L. Lehmann, "Algorithmic differentiation of linear
algebra functions" (2010). The columns of a full Q beyond the number of columns of the matrix are determined up to a rotation
among them; the gradient is right for functions that do not depend on that rotation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Same
from pullback.ir.core.types import I64, ArrayType, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import (
    I32,
    Linalg,
    adjoint,
    by_columns,
    choose,
    conj,
    conjugating,
    each,
    item,
    length,
    matmul,
    matrices,
    no_rule,
    part,
    put,
    real_of,
    rectangular,
    rows_and_columns,
    same_form,
    store_transposed,
    transpose,
    x_yh,
    xh_y,
)
from pullback.ir.ops.library.lapack import gehrd, geqp3, geqrf, orghr, orgqr
from pullback.ir.ops.linalg.eigh_svd import first_columns_ct

# qr: for matrices with at least as many rows as columns


def _qr(a: Any, full: bool) -> tuple[Any, Any]:
    *batch, m, n = a.shape
    columns = by_columns(a)
    r, q = np.zeros((*batch, n, n), a.dtype), np.zeros((*batch, m if full else n, m), a.dtype)
    for index in np.ndindex(*batch):
        scales, info = np.zeros(n, a.dtype), np.zeros((), np.int32)
        geqrf.function(columns[index], scales, None, info)
        r[index] = np.triu(columns[index].T[:n])
        q[index][:n] = columns[index]
        orgqr.function(q[index], scales, None, info)
    return np.swapaxes(q, -1, -2), r


def _tall(types: Sequence[Type]) -> ArrayType:
    a = rectangular(types)
    m, n = a.shape[-2:]
    if isinstance(m, int) and isinstance(n, int) and m < n:
        raise TypeError("takes matrices with no fewer rows than columns")
    return a


def _qr_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = _tall(types)
    *batch, m, n = a.shape
    return a.with_shape((*batch, m, m if params["full"] else n)), a.with_shape((*batch, n, n))


def _qr_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    m, n = a.shape[-2:]
    q_columns = m if params["full"] else n
    shapes = ((n, m), (q_columns, m), (n,), (32, q_columns))
    return (*(RefType(a.dtype, shape) for shape in shapes), RefType(I32))


def _qr_body(b: Any, params: Mapping[str, Any], a: Value, q: Value, r: Value, *scratch: Value) -> None:
    columns, rows, scales, work, info = scratch
    store_transposed(b, a, columns)
    b.here("geqrf", columns, scales, work, info)
    each(b, r, lambda i, j: choose(b, b.le(i, j), item(b, columns, j, i)))
    i = b.open("i")
    j = b.open("j")
    put(b, item(b, columns, i, j), rows, i, j)
    b.close(j, length(b, columns, 1))
    b.close(i, length(b, columns, 0))
    b.here("orgqr", rows, scales, work, info)
    store_transposed(b, rows, q)


def _qr_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the gradient; the diagonal of r stays real."""
    q, r = outputs
    ct_q, ct_r = cts
    if params["full"]:
        m, n = inputs[0].type.shape[-2:]
        thin = part(b, q, 0, 0, m, n)
        q, ct_q = thin, ZERO if ct_q is ZERO else first_columns_ct(b, q, thin, ct_q, n)
    parts = []
    if ct_r is not ZERO:
        parts.append(x_yh(b, r, ct_r))
    if ct_q is not ZERO:
        parts.append(b.neg(xh_y(b, ct_q, q)))
    product = parts[0] if len(parts) == 1 else b.add(*parts)
    row, column = rows_and_columns(b, product.type)
    inner = b.select(b.ge(row, column), product, adjoint(b, product))
    if product.type.dtype.kind == "c":
        inner = b.select(b.eq(row, column), b.cast(b.real(product), dtype=product.type.dtype), inner)
    total = matmul(b, q, inner)
    total = total if ct_q is ZERO else b.add(ct_q, total)
    solved = b.triangular_solve(conj(b, r), transpose(b, total), lower=False, transposed=False, unit_diagonal=False)
    return [transpose(b, solved)]


qr = Linalg(
    name="qr", reference=_qr, pullback=conjugating(_qr_rule), typed_as=_qr_type, core=(2, 2, 2, 2, 2, 1, 2, 0), body=_qr_body,
    scratch=_qr_scratch,
)  # fmt: skip
"""Results: q, with orthonormal columns, as many as the columns of the matrix, or with ``full`` as many as its rows; and the
upper triangle r."""


# column_pivots: a permutation of columns for which the diagonal of r decreases


def _column_pivots(a: Any) -> Any:
    columns = by_columns(a)
    pivots = np.zeros((*a.shape[:-2], a.shape[-1]), np.int32)
    for index in np.ndindex(a.shape[:-2]):
        geqp3.function(columns[index], pivots[index], None, None, None, np.zeros((), np.int32))
    return pivots.astype(np.int64) - 1 if a.size else np.broadcast_to(np.arange(a.shape[-1]), pivots.shape)


def _column_pivots_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = rectangular(types)
    return (ArrayType(I64, (*a.shape[:-2], a.shape[-1])),)


def _column_pivots_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    m, n = a.shape[-2:]
    buffers = (RefType(a.dtype, (n, m)), RefType(I32, (n,)), RefType(a.dtype, (n,)), RefType(a.dtype, (35, n)))
    return (*buffers, RefType(real_of(a.dtype), (2, n)), RefType(I32))


def _column_pivots_body(b: Any, params: Mapping[str, Any], a: Value, pivots: Value, *scratch: Value) -> None:
    """Emit the call of geqp3. LAPACK does not write pivots of a matrix without rows; these become the identity."""
    columns, lapack_pivots, *work = scratch
    store_transposed(b, a, columns)
    i = b.open("i")
    b.here("store", b.const(0, I32), lapack_pivots, i)
    b.close(i, length(b, lapack_pivots, 0))
    b.here("geqp3", columns, lapack_pivots, *work)
    i = b.open("i")
    pivot = b.here("cast", b.here("load", lapack_pivots, i), dtype=I64)
    b.here("store", b.here("select", b.here("eq", pivot, b.const(0, I64)), i, b.here("sub", pivot, b.const(1, I64))), pivots, i)
    b.close(i, length(b, pivots, 0))


column_pivots = Linalg(
    name="column_pivots", reference=_column_pivots, nondifferentiable="a position is an integer", typed_as=_column_pivots_type,
    core=(2, 1, 2, 1, 1, 2, 2, 0), body=_column_pivots_body, scratch=_column_pivots_scratch,
)  # fmt: skip
"""A permutation of columns for which the diagonal of r decreases."""


# reflections: r, and below its diagonal the reflection vectors


def _reflections(a: Any, form: str) -> tuple[Any, Any]:
    columns, scales = by_columns(a), np.zeros((*a.shape[:-2], min(a.shape[-2:])), a.dtype)
    for index in np.ndindex(a.shape[:-2]):
        geqrf.function(columns[index], scales[index], None, np.zeros((), np.int32))
    return np.swapaxes(columns, -1, -2), scales


def _reflections_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    a = rectangular(types)
    return a, a.with_shape((*a.shape[:-2], same_form(a, params["form"], same)))


def _reflections_body(b: Any, params: Mapping[str, Any], a: Value, packed: Value, scales: Value, *scratch: Value) -> None:
    columns, *work = scratch
    store_transposed(b, a, columns)
    b.here("geqrf", columns, scales, *work)
    store_transposed(b, columns, packed)


reflections = Linalg(
    name="reflections", reference=_reflections, pullback=no_rule, typed_as=_reflections_type, core=(2, 2, 1, 2, 2, 0),
    body=_reflections_body, missing={0: "use q and r, which have one"},
    scratch=lambda a, params: (
        RefType(a.dtype, (a.shape[-1], a.shape[-2])), RefType(a.dtype, (32, a.shape[-1])), RefType(I32)
    ),
)  # fmt: skip
"""Results: r with the vectors of the reflections below its diagonal, and their scales. Param ``form`` as of ``svd``."""


# hessenberg: h, zero below the first subdiagonal, and q with a = q h q^H


def _hessenberg(a: Any) -> tuple[Any, Any]:
    columns, vectors = by_columns(a), by_columns(np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape))
    form = np.array(columns)
    for index in np.ndindex(a.shape[:-2]):
        scales, info = np.zeros(a.shape[-1], a.dtype), np.zeros((), np.int32)
        gehrd.function(columns[index], scales, None, info)
        form[index] = np.triu(columns[index].T, -1).T
        vectors[index] = columns[index]
        orghr.function(vectors[index], scales, None, info)
    return np.swapaxes(form, -1, -2), np.swapaxes(vectors, -1, -2)


def _hessenberg_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return a, a


def _hessenberg_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    n = a.shape[-1]
    return RefType(a.dtype, (n, n)), RefType(a.dtype, (n,)), RefType(a.dtype, (32, n)), RefType(I32)


def _hessenberg_body(b: Any, params: Mapping[str, Any], a: Value, form: Value, vectors: Value, *scratch: Value) -> None:
    columns = scratch[0]
    store_transposed(b, a, columns)
    b.here("gehrd", *scratch)
    one = b.const(1, I64)
    each(b, form, lambda i, j: choose(b, b.le(i, b.add(j, one)), item(b, columns, j, i)))
    b.here("orghr", *scratch)
    store_transposed(b, columns, vectors)


hessenberg = Linalg(
    name="hessenberg", reference=_hessenberg, pullback=no_rule, typed_as=_hessenberg_type, core=(2, 2, 2, 2, 1, 2, 0),
    body=_hessenberg_body, scratch=_hessenberg_scratch, missing={0: "the derivative of a Hessenberg form is not known here"},
)  # fmt: skip
"""Results: h and q."""
