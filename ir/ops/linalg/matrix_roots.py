"""The square root and the logarithm of matrices, by their complex Schur forms. For a real matrix without negative eigenvalues
they are real.

A result ``info`` is 1 where the result for a real matrix would be complex.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Contribution, Op, Same, resolve
from pullback.ir.core.types import I64, ArrayType, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.library.family import (
    I32,
    Linalg,
    Scalar,
    apply_parts,
    complex_of,
    copy,
    each,
    item,
    length,
    matrices,
    modulus,
    put,
    real_of,
    scaled,
    store_transposed,
)
from pullback.ir.ops.linalg.matrix_exponential import block_rule

NODES = (
    0.019855071751231912, 0.10166676129318664, 0.2372337950418355, 0.4082826787521751,
    0.5917173212478248, 0.7627662049581645, 0.8983332387068134, 0.9801449282487681,
)  # fmt: skip
"""The nodes of the Gauss-Legendre rule of eight points over [0, 1]."""
WEIGHTS = (
    0.05061426814518853, 0.11119051722668721, 0.15685332293894344, 0.18134189168918083,
    0.18134189168918083, 0.15685332293894344, 0.11119051722668721, 0.05061426814518853,
)  # fmt: skip
"""The weights of the Gauss-Legendre rule of eight points over [0, 1]."""
NEAR_ONE, MAX_ROOTS = 0.25, 64
SLACK = {"root": 1e-7, "logarithm": 1e-9}
"""The largest imaginary part, relative to the largest real part, that counts as rounding of a real result."""


def _reference(name: str, kind: str) -> Callable[[Any], tuple[Any, Any]]:
    def function(a: Any) -> tuple[Any, Any]:
        results, info = np.zeros_like(a), np.zeros(a.shape[:-2], np.int32)
        for index in np.ndindex(info.shape) if a.size else ():
            with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
                value = np.asarray(resolve(f"scipy.linalg.{name}")(a[index]))
            if a.dtype.kind == "f" and np.iscomplexobj(value):
                info[index] = np.max(np.abs(value.imag)) > SLACK[kind] * np.max(np.abs(value.real))
                value = value.real
            results[index] = value
        return results, info

    return function


def _type(types: Sequence[Type], params: Mapping[str, Any], same: Same) -> tuple[ArrayType, ...]:
    (a,) = matrices(types, 1, same)
    return a, ArrayType(I32, a.shape[:-2])


def _scratch(a: ArrayType, params: Mapping[str, Any]) -> tuple[RefType, ...]:
    n, dtype, real = a.shape[-1], complex_of(a.dtype), real_of(a.dtype)
    square, line = RefType(dtype, (n, n)), RefType(dtype, (n,))
    return (
        *(square, RefType(I32), line, RefType(real, (n,)), square, RefType(dtype, (34, n)), RefType(I32, (n,))),
        *(square, square, square, RefType(real)),
    )


CORE = (2, 2, 0, 2, 0, 1, 1, 2, 2, 1, 2, 2, 2, 0)


# arithmetic of complex numbers


def _times(b: Any, x: Scalar, y: Scalar) -> Scalar:
    return b.sub(b.mul(x[0], y[0]), b.mul(x[1], y[1])), b.add(b.mul(x[0], y[1]), b.mul(x[1], y[0]))


def _conjugate(b: Any, x: Scalar) -> Scalar:
    return x[0], b.neg(x[1])


def _over(b: Any, x: Scalar, y: Scalar) -> Scalar:
    """Return the quotient x / y; 0 if both are 0."""
    size = modulus(b, y)
    unit = tuple(b.div(v, size) for v in y)
    quotient = _times(b, tuple(b.div(v, size) for v in x), _conjugate(b, unit))
    zero = b.const(0, size.type.dtype)
    is_nothing = b.bitand(b.eq(size, zero), b.eq(modulus(b, x), zero))
    return tuple(b.select(is_nothing, zero, v) for v in quotient)


def _root(b: Any, x: Scalar) -> Scalar:
    """Return the principal square root."""
    re, im = x
    zero, half = b.const(0, re.type.dtype), b.const(0.5, re.type.dtype)
    large = b.sqrt(b.mul(b.add(modulus(b, x), b.abs(re)), half))
    small = b.select(b.eq(large, zero), zero, b.div(b.mul(b.abs(im), half), large))
    is_right = b.ge(re, zero)
    return b.select(is_right, large, small), b.copysign(b.select(is_right, small, large), im)


def _roots(b: Any, t: Value, count: Value) -> None:
    """Emit the square root of an upper triangular matrix, in place: A. Bjorck and S. Hammarling, "A Schur method for the
    square root of a matrix" (1983). ``count``: its order, or 0 to do nothing."""
    one = b.const(1, I64)
    zero = b.const(0, t.type.dtype)
    j = b.open("j")
    put(b, _root(b, item(b, t, j, j)), t, j, j)
    step = b.open("i")
    i = b.sub(b.sub(j, one), step)
    k = b.open("k")
    at = b.add(b.add(i, one), k)
    product = _times(b, item(b, t, i, at), item(b, t, at, j))
    total = b.close(k, step, (zero, zero), product, ("add", "add"))
    remainder = apply_parts(b, "sub", item(b, t, i, j), total)
    put(b, _over(b, remainder, apply_parts(b, "add", item(b, t, i, i), item(b, t, j, j))), t, i, j)
    b.close_ordered(step, j)
    b.close_ordered(j, count)


def _minus_identity(b: Any, x: Scalar, i: Value, j: Value) -> Scalar:
    """Return element (i, j) of a matrix minus the identity."""
    unit = b.select(b.eq(i, j), b.const(1, x[0].type.dtype), b.const(0, x[0].type.dtype))
    return b.sub(x[0], unit), x[1]


def _largest(b: Any, ref: Value, size: Callable[[Value, Value], Value], combine: str) -> Value:
    """Emit the maximum over the columns of the reduction (``combine``: "add" or "maximum") of ``size(i, j)`` over the rows."""
    zero = b.const(0, ref.type.dtype)
    j = b.open("j")
    i = b.open("i")
    (total,) = b.close(i, length(b, ref, 0), (zero,), (size(i, j),), (combine,))
    (largest,) = b.close(j, length(b, ref, 1), (zero,), (total,), ("maximum",))
    return largest


# the kernels


def _schur_form(b: Any, a: Value, columns: Value, t: Value, *others: Value) -> None:
    """Emit the complex Schur form of a: its rows into t, its vectors in column-major order."""
    is_real = a.type.rank == 2
    nothing = b.const(0, a.type.dtype)
    each(b, columns, lambda i, j: (*item(b, a, j, i), nothing)[:2] if is_real else item(b, a, j, i))
    b.here("gees", columns, *others)
    store_transposed(b, columns, t)


def _from_schur(b: Any, t: Value, vectors: Value, columns: Value, work: Value, out: Value, info: Value, slack: float) -> None:
    """Emit z t z^H; ``vectors`` is the transpose of z. ``info`` becomes 1 if a result of a real matrix has imaginary parts
    above ``slack``."""
    store_transposed(b, vectors, work)
    b.here("gemm", work, t, columns, transpose_a=False, transpose_b=False)
    each(b, vectors, lambda i, j: _conjugate(b, item(b, vectors, i, j)))
    b.here("gemm", columns, vectors, t, transpose_a=False, transpose_b=False)
    if out.type.rank == 3:
        copy(b, t, out)
        b.here("store", b.const(0, I32), info)
        return
    each(b, out, lambda i, j: item(b, t, i, j)[0])
    real = _largest(b, out, lambda i, j: b.abs(item(b, t, i, j)[0]), "maximum")
    imaginary = _largest(b, out, lambda i, j: b.abs(item(b, t, i, j)[1]), "maximum")
    b.here("store", b.cast(b.gt(imaginary, b.mul(real, b.const(slack, real.type.dtype))), dtype=I32), info)


def _sqrtm_body(b: Any, params: Mapping[str, Any], a: Value, out: Value, info: Value, *scratch: Value) -> None:
    columns, count, values, second, vectors, space, flags, t, work, _, _ = scratch
    _schur_form(b, a, columns, t, count, values, second, vectors, space, flags, info)
    _roots(b, t, length(b, t, 0))
    _from_schur(b, t, vectors, columns, work, out, info, SLACK["root"])


def _sqrtm_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Return the gradient from ds s + s ds = da, s being the root: N. Higham, Functions of Matrices (2008), section 6.1."""
    root = outputs[0]
    form, vectors, _ = b.schur(root)
    return [b.sylvester(cts[0], root, root, form, form, vectors, vectors, transposed=True)]


sqrtm = Linalg(
    name="sqrtm", reference=_reference("sqrtm", "root"), pullback=_sqrtm_rule, typed_as=_type, core=CORE, body=_sqrtm_body,
    scratch=_scratch,
)  # fmt: skip


def _logm_body(b: Any, params: Mapping[str, Any], a: Value, out: Value, info: Value, *scratch: Value) -> None:
    """Take square roots until the matrix is close to 1; then log(1 + r) is the integral of r (1 + s r)^-1 over s from 0 to 1,
    by the Gauss-Legendre rule: N. Higham, Functions of Matrices (2008), section 11.5."""
    columns, count, values, second, vectors, space, flags, t, work, total, roots = scratch
    _schur_form(b, a, columns, t, count, values, second, vectors, space, flags, info)
    zero, one = b.const(0, roots.type.dtype), b.const(1, roots.type.dtype)
    b.here("store", zero, roots)
    step = b.open("step")
    size = _largest(b, t, lambda i, j: modulus(b, _minus_identity(b, item(b, t, i, j), i, j)), "add")
    is_far = b.gt(size, b.const(NEAR_ONE, size.type.dtype))
    b.here("store", b.add(b.here("load", roots), b.select(is_far, one, zero)), roots)
    _roots(b, t, b.select(is_far, length(b, t, 0), b.const(0, I64)))
    b.close_ordered(step, b.const(MAX_ROOTS, I64))
    each(b, t, lambda i, j: _minus_identity(b, item(b, t, i, j), i, j))
    each(b, total, lambda i, j: (zero, zero))
    for node, weight in zip(NODES, WEIGHTS, strict=True):
        at, factor = b.const(node, zero.type.dtype), b.const(weight, zero.type.dtype)

        def between(i: Value, j: Value, at: Value = at) -> Scalar:
            unit = b.select(b.eq(i, j), one, zero)
            re, im = scaled(b, item(b, t, i, j), at)
            return b.add(re, unit), im

        def added(i: Value, j: Value, factor: Value = factor) -> Scalar:
            return apply_parts(b, "add", item(b, total, i, j), scaled(b, item(b, work, i, j), factor))

        each(b, columns, between)
        copy(b, t, work)
        b.here("trsm", columns, work, lower=False, transposed=False, unit_diagonal=False)
        each(b, total, added)
    power = b.exp2(b.here("load", roots))
    each(b, t, lambda i, j: scaled(b, item(b, total, i, j), power))
    _from_schur(b, t, vectors, columns, work, out, info, SLACK["logarithm"])


logm = Linalg(
    name="logm", reference=_reference("logm", "logarithm"), pullback=block_rule, typed_as=_type, core=CORE, body=_logm_body,
    scratch=_scratch,
)  # fmt: skip
