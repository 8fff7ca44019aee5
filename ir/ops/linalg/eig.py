"""Eigenvalues and eigenvectors of general matrices; the results are always complex.

They are LAPACK's: vectors have norm 1 and a real largest component. The gradient is equation 4.77 of C. Boeddeker et al., "On
the computation of complex-valued gradients with application to statistically optimum beamforming" (2017): it holds the
vectors' norm and phase fixed, so it is right for functions that do not depend on the phases. Where two eigenvalues are equal,
a gradient that depends on their vectors is NaN.
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
    by_columns,
    columns_of,
    complex_of,
    conj,
    conjugating,
    diagonal,
    each,
    identity,
    item,
    length,
    matrices,
    put,
    real_of,
    rows_of,
    store_transposed,
    x_yh,
    xh_y,
)
from pullback.ir.ops.library.lapack import geev
from pullback.ir.ops.linalg.spectral_gaps import over_gaps, zero_bound


def _eig(a: Any) -> tuple[Any, Any, Any]:
    dtype = np.result_type(a.dtype, np.complex64)
    n = a.shape[-1]
    columns, info = by_columns(a), np.zeros(a.shape[:-2], np.int32)
    values, vectors = np.zeros(a.shape[:-1], dtype), np.zeros(a.shape, dtype)
    for index in np.ndindex(info.shape):
        eigenvalues, second, right = np.zeros(n, a.dtype), np.zeros((2, n), a.real.dtype), np.zeros((n, n), a.dtype)
        geev.function(columns[index], eigenvalues, second, None, right, None, info[(*index, ...)])
        values[index], vectors[index] = eigenvalues, right.T
        if a.dtype.kind == "f":
            values[index].imag = second[0]
            for k in np.flatnonzero(second[0] > 0):
                pair = right[k] + 1j * right[k + 1]
                vectors[index][:, k], vectors[index][:, k + 1] = pair, pair.conj()
    return values, vectors, info


def _type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    vectors = a.with_dtype(complex_of(a.dtype))
    return vectors.with_shape(a.shape[:-1]), vectors, ArrayType(I32, a.shape[:-2])


def _scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    n = a.shape[-1]
    square, line = RefType(a.dtype, (n, n)), RefType(a.dtype, (n,))
    return square, line, RefType(real_of(a.dtype), (2, n)), line, square, RefType(a.dtype, (34, n))


def _body(b: Any, params: Mapping[str, Any], a: Value, values: Value, vectors: Value, info: Value, *scratch: Value) -> None:
    """Emit the call of geev. For a conjugate pair of a real matrix LAPACK returns the real parts, then the imaginary parts."""
    columns, eigenvalues, second, left, right, work = scratch
    store_transposed(b, a, columns)
    b.here("geev", columns, eigenvalues, second, left, right, work, info)
    is_real, none = a.type.rank == 2, b.const(0, I64)
    k = b.open("k")
    put(b, (b.here("load", eigenvalues, k), b.here("load", second, none, k)) if is_real else item(b, eigenvalues, k), values, k)
    b.close(k, length(b, eigenvalues, 0))
    if not is_real:
        store_transposed(b, right, vectors)
        return
    zero, one = b.const(0, second.type.dtype), b.const(1, I64)

    def element(i: Value, k: Value) -> tuple[Value, Value]:
        size = b.here("load", second, none, k)
        is_first, is_second = b.here("gt", size, zero), b.here("lt", size, zero)
        real = b.here("load", right, b.here("select", is_second, b.here("sub", k, one), k), i)
        imaginary = b.here("load", right, b.here("select", is_first, b.here("add", k, one), k), i)
        signed = b.here("select", is_second, b.here("neg", imaginary), imaginary)
        return real, b.here("select", b.here("bitor", is_first, is_second), signed, zero)

    each(b, vectors, element)


def _rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    values, vectors, _ = outputs
    t = vectors.type
    inner = b.full(0, t)
    if cts[0] is not ZERO:
        inner = b.mul(identity(b, t), columns_of(b, cts[0], t))
    if cts[1] is not ZERO:
        gaps = conj(b, b.sub(columns_of(b, values, t), rows_of(b, values, t)))
        product = xh_y(b, vectors, cts[1])
        norm_part = columns_of(b, b.real(diagonal(b, product)), t)
        free = b.sub(product, b.mul(xh_y(b, vectors, vectors), norm_part))
        inner = b.add(inner, over_gaps(b, gaps, b.le(b.abs(gaps), zero_bound(b, b.abs(columns_of(b, values, t)))), free, product))
    packed, pivots = b.lu(vectors, form="square")
    right = conj(b, x_yh(b, inner, vectors))
    total = conj(b, b.solve(vectors, packed, right, pivots, transposed=True))
    return [total if inputs[0].type.dtype.kind == "c" else b.real(total)]


eig = Linalg(
    name="eig", reference=_eig, pullback=conjugating(_rule), typed_as=_type, core=(2, 1, 2, 0, 2, 1, 2, 1, 2, 2), body=_body,
    scratch=_scratch,
)  # fmt: skip
"""Results: the eigenvalues, the eigenvectors as columns, and, of i32, 0 where the computation converged."""
