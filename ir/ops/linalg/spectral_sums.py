"""Sums of functions of eigenvalues of Hermitian matrices, and the matrix functions that are their gradients.

With eigenvalues w and vectors V of a, the sum of f(w) has the gradient V f'(w) V^H. A matrix function V g(w) V^H has a
derivative by divided differences (N. Higham, Functions of Matrices, 2008, theorem 3.11): V (E * (V^H da V)) V^H, where E_ij is
(g(w_i) - g(w_j)) / (w_i - w_j), or g'(w_i) where the two are close. Neither depends on the vectors of equal eigenvalues.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Same
from pullback.ir.core.types import ArrayType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import (
    Composed,
    as_dtype,
    columns_of,
    conjugating,
    hermitian,
    matmul,
    matrices,
    rows_of,
    spread,
    x_yh,
    xh_y,
)
from pullback.ir.ops.linalg.spectral_gaps import real_type


def _types(count: int, types: Sequence[Type], same: Same) -> tuple[ArrayType, ArrayType]:
    """Check the operands and return the types of a and of the eigenvalues; operands are a, the vectors, and ``count`` vectors."""
    a, _ = matrices(types[:2], 2, same)
    values = [t for t in types[2:] if isinstance(t, ArrayType)]
    if len(types) != 2 + count or len(values) != count or any(t.rank != a.rank - 1 for t in values):
        raise TypeError(f"takes a, its eigenvectors, its eigenvalues and {count - 1} functions of these")
    for t in values:
        for e, f in zip(t.shape, a.shape[:-1], strict=True):
            same(e, f)
    return a, values[0]


def _sum_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    _, values = _types(4, types, same)
    return (values.with_shape(values.shape[:-1]),)


def _compose_sum(b: Any, a: Value, vectors: Value, w: Value, y: Value, slope: Value, bend: Value) -> tuple[Value, ...]:
    return (b.sum(y, axes=(y.type.rank - 1,)),)


def _sum_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    a, vectors, w, _, slope, bend = inputs
    function = b.spectral_map(a, vectors, w, slope, bend)
    return [b.mul(spread(b, as_dtype(b, cts[0], a.type.dtype), a.type), function), *[ZERO] * 5]


spectral_sum = Composed(
    name="spectral_sum", reference=lambda a, vectors, w, y, slope, bend: np.sum(y, axis=-1), pullback=conjugating(_sum_rule),
    typed_as=_sum_type, compose=_compose_sum,
)  # fmt: skip
"""The sum of f(w); operands a, its eigenvectors, its eigenvalues w, f(w), f'(w) and f''(w)."""


def _map_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    return (_types(3, types, same)[0],)


def _compose_map(b: Any, a: Value, vectors: Value, w: Value, g: Value, slope: Value) -> tuple[Value, ...]:
    return (hermitian(b, x_yh(b, b.mul(vectors, columns_of(b, g, vectors.type)), vectors)),)


def _map_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    _, vectors, w, g, slope = inputs
    t = real_type(vectors.type)
    w_i, w_j, g_i, g_j, s_i, s_j = (f(b, x, t) for x in (w, g, slope) for f in (rows_of, columns_of))
    gap, half = b.sub(w_i, w_j), b.full(0.5, t)
    close = b.full(float(np.finfo(t.dtype.numpy).eps) ** (1 / 3), t)
    is_close = b.le(b.abs(gap), b.mul(close, b.maximum(b.abs(w_i), b.abs(w_j))))
    quotient = b.div(b.sub(g_i, g_j), b.select(is_close, b.full(1, t), gap))
    differences = as_dtype(b, b.select(is_close, b.mul(half, b.add(s_i, s_j)), quotient), vectors.type.dtype)
    inner = matmul(b, xh_y(b, vectors, cts[0]), vectors)
    return [hermitian(b, x_yh(b, matmul(b, vectors, b.mul(differences, inner)), vectors)), *[ZERO] * 4]


def _map(a: Any, v: Any, w: Any, g: Any, slope: Any) -> Any:
    result = (v * g[..., None, :]) @ np.swapaxes(v, -1, -2).conj()
    return 0.5 * (result + np.swapaxes(result, -1, -2).conj())


spectral_map = Composed(
    name="spectral_map", reference=_map,
    pullback=conjugating(_map_rule), typed_as=_map_type, compose=_compose_map,
)  # fmt: skip
"""V g(w) V^H, Hermitian to the last bit; operands a, its eigenvectors V, its eigenvalues w, g(w) and g'(w)."""
