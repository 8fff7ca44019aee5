"""Schur forms and the Sylvester equations that are solved with them.

Gradients of the equations are equations of the same kind; the gradient of a Schur form itself is not implemented.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Op, Same
from pullback.ir.core.types import ArrayType, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import (
    I32,
    INEXACT,
    Composed,
    Linalg,
    by_columns,
    conj,
    each,
    item,
    matmul,
    matrices,
    no_rule,
    real_of,
    store_transposed,
    x_yh,
    xh_y,
)
from pullback.ir.ops.library.lapack import gees, trsyl

# schur: a = z t z^H, with t upper triangular, for real matrices up to 2 x 2 diagonal blocks


def _schur(a: Any) -> tuple[Any, Any, Any]:
    columns, vectors = by_columns(a), np.empty_like(a)
    info = np.zeros(a.shape[:-2], np.int32)
    for index in np.ndindex(info.shape):
        gees.function(columns[index], None, None, None, vectors[index], None, None, info[(*index, ...)])
    return np.swapaxes(columns, -1, -2), np.swapaxes(vectors, -1, -2), info


def _schur_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return a, a, ArrayType(I32, a.shape[:-2])


def _schur_scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    n = a.shape[-1]
    square = RefType(a.dtype, (n, n))
    vector = RefType(a.dtype, (n,))
    return square, RefType(I32), vector, RefType(real_of(a.dtype), (n,)), square, RefType(a.dtype, (34, n)), RefType(I32, (n,))


def _schur_body(b: Any, params: Mapping[str, Any], a: Value, form: Value, vectors: Value, info: Value, *scratch: Value) -> None:
    columns, count, values, second, rows, work, flags = scratch
    store_transposed(b, a, columns)
    b.here("gees", columns, count, values, second, rows, work, flags, info)
    store_transposed(b, columns, form)
    store_transposed(b, rows, vectors)


schur = Linalg(
    name="schur", reference=_schur, pullback=no_rule, typed_as=_schur_type, core=(2, 2, 2, 0, 2, 0, 1, 1, 2, 2, 1),
    body=_schur_body, scratch=_schur_scratch, missing={0: "the derivative of a Schur form is not known here"},
)  # fmt: skip
"""Results: t, z, and, of i32, 0 where the computation converged."""


# triangular_sylvester: x with a x + x b = c, for Schur forms a and b


def _triangular_sylvester(c: Any, a: Any, b: Any, adjoint: bool) -> Any:
    x, left, right = (by_columns(k) for k in (c, a, b))
    for index in np.ndindex(c.shape[:-2]):
        scale = np.ones((), a.real.dtype)
        trsyl.function(left[index], right[index], x[index], scale, np.zeros((), np.int32), adjoint=adjoint)
        x[index] /= scale
    return np.swapaxes(x, -1, -2)


def _equation(types: Sequence[Type], same: Same) -> ArrayType:
    """Check the operands and return the type of c; the others alternate between square matrices of c's row count and column
    count."""
    arrays = [t for t in types if isinstance(t, ArrayType) and t.rank >= 2 and t.dtype in INEXACT]
    if len(arrays) != len(types):
        raise TypeError("takes matrices of a dtype that is floating-point or complex")
    c, *others = arrays
    for k, t in enumerate(others):
        if t.dtype is not c.dtype or t.rank != c.rank:
            raise TypeError("takes matrices of one dtype, with as many batch axes")
        side = c.shape[-1 if k % 2 else -2]
        for e, f in zip(t.shape, (*c.shape[:-2], side, side), strict=True):
            same(e, f)
    return c


def _triangular_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    if len(types) != 3:
        raise TypeError("takes c, a and b")
    return (_equation(types, same),)


def _triangular_scratch(c: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    m, n = c.shape[-2:]
    shapes = ((m, m), (n, n), (n, m))
    return (*(RefType(c.dtype, shape) for shape in shapes), RefType(real_of(c.dtype)), RefType(I32))


def _triangular_body(b: Any, params: Mapping[str, Any], c: Value, left: Value, right: Value, x: Value, *scratch: Value) -> None:
    """Emit the call of trsyl. LAPACK scales the solution to avoid overflow; it is divided by that scale."""
    rows, columns, solution, scale, info = scratch
    for source, target in ((left, rows), (right, columns), (c, solution)):
        store_transposed(b, source, target)
    b.here("store", b.const(1, scale.type.dtype), scale)
    b.here("trsyl", rows, columns, solution, scale, info, adjoint=params["adjoint"])
    size = b.here("load", scale)
    each(b, x, lambda i, j: tuple(b.here("div", part, size) for part in item(b, solution, j, i)))


triangular_sylvester = Linalg(
    name="triangular_sylvester", reference=_triangular_sylvester, pullback=no_rule, typed_as=_triangular_type,
    core=(2, 2, 2, 2, 2, 2, 2, 0, 0), body=_triangular_body, scratch=_triangular_scratch,
    missing=dict.fromkeys(range(3), "only sylvester has one"),
)  # fmt: skip
"""x with a x + x b = c; operands c, a, b. Param ``adjoint``: a^H x + x b^H = c instead."""


# sylvester: x with a x + x b = c, from the Schur forms of a and b


def _sylvester(c: Any, a: Any, b: Any, ta: Any, tb: Any, za: Any, zb: Any, transposed: bool) -> Any:
    right_side = c.conj() if transposed else c
    inner = _triangular_sylvester(np.swapaxes(za, -1, -2).conj() @ right_side @ zb, ta, tb, transposed)
    solution = za @ inner @ np.swapaxes(zb, -1, -2).conj()
    return solution.conj() if transposed else solution


def _sylvester_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    if len(types) != 7:
        raise TypeError("takes c, a and b, their Schur forms and vectors")
    return (_equation(types, same),)


def _compose_sylvester(
    b: Any, c: Value, left: Value, right: Value, ta: Value, tb: Value, za: Value, zb: Value, transposed: bool
) -> tuple[Value, ...]:
    """Emit the equation in the Schur bases; the transposed equation is the adjoint one with conjugates of c and x."""
    right_side = conj(b, c) if transposed else c
    inner = b.triangular_sylvester(matmul(b, xh_y(b, za, right_side), zb), ta, tb, adjoint=transposed)
    solution = x_yh(b, matmul(b, za, inner), zb)
    return (conj(b, solution) if transposed else solution,)


def _sylvester_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (_, *others), x, transposed = inputs, outputs[0], params["transposed"]
    ct = b.sylvester(cts[0], *others, transposed=not transposed)
    pairs = [(x, ct), (ct, x)] if transposed else [(ct, x), (x, ct)]
    specs = [("ik", "jk"), ("ki", "kj")]
    sides = [b.neg(matmul(b, *pair, *spec)) if want else ZERO for pair, spec, want in zip(pairs, specs, wants[1:3], strict=True)]
    return [ct, *sides, ZERO, ZERO, ZERO, ZERO]


sylvester = Composed(
    name="sylvester", reference=_sylvester, pullback=_sylvester_rule, typed_as=_sylvester_type, compose=_compose_sylvester
)
"""x with a x + x b = c; operands c, a, b, the Schur forms of a and b, and their vectors. ``transposed``: a^T x + x b^T = c
instead."""
