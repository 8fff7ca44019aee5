"""Schur forms and the Sylvester equations that they solve.

Gradients of the equations are equations of the same kind; a Schur form itself has none here.
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
    across,
    by_columns,
    conj,
    each,
    item,
    matmul,
    matrices,
    no_rule,
    real_of,
    turn,
    within,
)
from pullback.ir.ops.library.lapack import gees, trsyl

# schur: a = z t z^H, with t upper triangular, of a real matrix but for blocks of two


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
    turn(b, a, columns)
    b.here("gees", columns, count, values, second, rows, work, flags, info)
    turn(b, columns, form)
    turn(b, rows, vectors)


schur = Linalg(
    name="schur", reference=_schur, pullback=no_rule, typed_as=_schur_type, core=(2, 2, 2, 0, 2, 0, 1, 1, 2, 2, 1),
    body=_schur_body, scratch=_schur_scratch, missing={0: "the derivative of a Schur form is not known here"},
)  # fmt: skip
"""Results: t, z, and, of i32, 0 where they were found."""


# triangular_sylvester: x with a x + x b = c, for Schur forms a and b


def _triangular_sylvester(c: Any, a: Any, b: Any, adjoint: bool) -> Any:
    x, left, right = (by_columns(k) for k in (c, a, b))
    for index in np.ndindex(c.shape[:-2]):
        scale = np.ones((), a.real.dtype)
        trsyl.function(left[index], right[index], x[index], scale, np.zeros((), np.int32), adjoint=adjoint)
        x[index] /= scale
    return np.swapaxes(x, -1, -2)


def _equation(types: Sequence[Type], same: Same) -> ArrayType:
    """The type of c; the others are square matrices of its rows and of its columns in turn."""
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
    """What LAPACK scaled in fear of overflow is divided by its scale."""
    rows, columns, found, scale, info = scratch
    for source, target in ((left, rows), (right, columns), (c, found)):
        turn(b, source, target)
    b.here("store", b.const(1, scale.type.dtype), scale)
    b.here("trsyl", rows, columns, found, scale, info, adjoint=params["adjoint"])
    size = b.here("load", scale)
    each(b, x, lambda i, j: tuple(b.here("div", part, size) for part in item(b, found, j, i)))


triangular_sylvester = Linalg(
    name="triangular_sylvester", reference=_triangular_sylvester, pullback=no_rule, typed_as=_triangular_type,
    core=(2, 2, 2, 2, 2, 2, 2, 0, 0), body=_triangular_body, scratch=_triangular_scratch,
    missing=dict.fromkeys(range(3), "only sylvester has one"),
)  # fmt: skip
"""Operands c, a, b. Param ``adjoint``: x with a^H x + x b^H = c."""


# sylvester: x with a x + x b = c, given the Schur forms of a and b


def _sylvester(c: Any, a: Any, b: Any, ta: Any, tb: Any, za: Any, zb: Any, transposed: bool) -> Any:
    given = c.conj() if transposed else c
    inner = _triangular_sylvester(np.swapaxes(za, -1, -2).conj() @ given @ zb, ta, tb, transposed)
    found = za @ inner @ np.swapaxes(zb, -1, -2).conj()
    return found.conj() if transposed else found


def _sylvester_type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    if len(types) != 7:
        raise TypeError("takes c, a and b, their Schur forms and vectors")
    return (_equation(types, same),)


def _compose_sylvester(
    b: Any, c: Value, left: Value, right: Value, ta: Value, tb: Value, za: Value, zb: Value, transposed: bool
) -> tuple[Value, ...]:
    """The transposed equation is the adjoint one of conjugates."""
    given = conj(b, c) if transposed else c
    inner = b.triangular_sylvester(matmul(b, within(b, za, given), zb), ta, tb, adjoint=transposed)
    found = across(b, matmul(b, za, inner), zb)
    return (conj(b, found) if transposed else found,)


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
"""Operands c, a, b, the Schur forms of a and b, and their vectors. Param ``transposed``: x with a^T x + x b^T = c."""
