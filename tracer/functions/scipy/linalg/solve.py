"""scipy.linalg's solvers on traced arrays, composed of the IR's factorisations.

float32 is computed in float32. ``check_finite`` is honoured; ``overwrite_a`` and ``overwrite_b`` are ignored. Unlike SciPy,
``solve`` and ``inv`` do not search the matrix for structure: without ``assume_a`` a general matrix is factored.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import positions, reshaped, xp
from pullback.tracer.arrays.make import as_traced, broadcast_shapes, broadcast_to, cast, emit, expand, full, promote
from pullback.tracer.arrays.python_scalars import weak
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg import solve as linalg
from pullback.tracer.functions.numpy.linalg.decompositions import form_of
from pullback.tracer.functions.numpy.linalg.norms import euclidean, norm
from pullback.tracer.functions.scipy.linalg.arguments import (
    finite,
    fits,
    nonzero,
    of_lapack,
    rectangle,
    scipy_twin,
    solved,
    square_matrix,
)
from pullback.tracer.user_code.errors import TraceError

NOT_POSITIVE = "a leading minor of the array is not positive definite"
SINGULAR = "A singular matrix detected"
STRUCTURES = {
    None: "general", "general": "general", "gen": "general", "pos": "pos", "positive definite": "pos",
    "sym": "sym", "symmetric": "sym", "her": "her", "hermitian": "her", "diagonal": "diagonal", "tridiagonal": "tridiagonal",
    "lower triangular": "lower", "upper triangular": "upper",
}  # fmt: skip


# Cholesky


def _factor(a: Any, lower: bool, check_finite: bool) -> TracedArray:
    x = finite(a, check_finite)
    x = expand(x, range(2 - x.ndim)) if x.ndim < 2 else x
    square_matrix(x, "Input array is expected to be square but has the shape: {shape}.")
    (x,) = of_lapack(x)
    factor = linalg.lower_factor(x if lower else linalg.adjoint(x), NOT_POSITIVE)
    return factor if lower else linalg.adjoint(factor)


@scipy_twin("cholesky")
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> TracedArray:
    return _factor(a, lower, check_finite)


@scipy_twin("cho_factor")
def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[TracedArray, bool]:
    """Return the Cholesky factor and ``lower``. The other triangle, whose contents SciPy leaves undefined, is zero."""
    return _factor(a, lower, check_finite), lower


@scipy_twin("cho_solve")
def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> TracedArray:
    factor, lower = c_and_lower
    c, y = finite(factor, check_finite), finite(b, check_finite)
    square_matrix(c, "The factored matrix c is not square.")
    fits(c, y, "incompatible dimensions ({a} and {b})")
    c, y = of_lapack(c, y)
    return solved(functools.partial(_by_factor, c, lower), y)


def _by_factor(c: TracedArray, lower: bool, b: TracedArray) -> TracedArray:
    first = _triangular(c, b, lower, "N" if lower else "C")
    return _triangular(c, first, lower, "C" if lower else "N")


# triangular and general matrices


@scipy_twin("solve_triangular")
def solve_triangular(
    a: Any,
    b: Any,
    trans: Any = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> TracedArray:
    x, y = finite(a, check_finite), finite(b, check_finite)
    square_matrix(x, "expected square matrix")
    fits(x, y, "shapes of a {a} and b {b} are incompatible")
    x, y = of_lapack(x, y)
    if not unit_diagonal:
        nonzero(linalg.diagonal(x), "singular matrix: a zero on the diagonal")
    return solved(lambda c: _triangular(x, c, bool(lower), trans, bool(unit_diagonal)), y)


def _triangular(a: TracedArray, b: TracedArray, lower: bool, trans: Any, unit: bool = False) -> TracedArray:
    a, is_transposed = _trans(a, trans)
    return linalg.triangular(a, b, lower, is_transposed, unit)


def _trans(a: TracedArray, trans: Any) -> tuple[TracedArray, bool]:
    """Return the matrix, conjugated if ``trans`` requests the adjoint, and whether it must be transposed."""
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans={trans!r}: 0, 1, 2, 'N', 'T' or 'C' was expected")
    return linalg.conjugate(a) if trans in (2, "C") else a, trans not in (0, "N")


@scipy_twin("solve")
def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> TracedArray:
    """Solve by Cholesky factors for ``assume_a`` "pos", else by LU factors; only one triangle of a symmetric matrix is read."""
    x, y = finite(a, check_finite), finite(b, check_finite)
    x, y = promote(x, y)
    x, y = (cast(k, _solver_dtype(x.dtype)) for k in (x, y))
    x = expand(x, range(2 - x.ndim)) if x.ndim < 2 else x
    y = expand(y, (0,)) if y.ndim == 0 else y
    square_matrix(x, "Expected square matrix, got a1.shape={shape}")
    if x.size == 1 and x.shape[-1] != y.shape[0 if y.ndim == 1 else -2]:
        nonzero(x, SINGULAR)
        return y / reshaped(x, ())
    fits(x, y, "incompatible shapes: a1.shape={a} and b1.shape={b}")
    return solved(lambda c: _structured(x, c, assume_a, bool(lower), bool(transposed)), y)


def _solver_dtype(dtype: np.dtype[Any]) -> Any:
    """Return the dtype in which SciPy solves equations of ``dtype``."""
    if dtype.kind == "c":
        return dtype
    return np.float32 if dtype.kind in "fV" and dtype.itemsize <= 4 else np.float64


def _structured(a: TracedArray, b: TracedArray, assume_a: str | None, lower: bool, transposed: bool) -> TracedArray:
    if assume_a not in STRUCTURES:
        if assume_a == "banded":
            raise TraceError("scipy.linalg.solve(assume_a='banded') is not supported; leave assume_a out")
        raise ValueError(f"{assume_a} is not a recognized matrix structure")
    structure = STRUCTURES[assume_a]
    if structure in ("lower", "upper"):
        nonzero(linalg.diagonal(a), SINGULAR)
        return linalg.triangular(a, b, structure == "lower", transposed)
    if structure == "diagonal":
        nonzero(linalg.diagonal(a), SINGULAR)
        return b / xp.expand_dims(linalg.diagonal(a), -1)
    if structure == "pos":
        factor = linalg.lower_factor(a if lower else linalg.adjoint(a), SINGULAR)
        return _by_factor(factor, True, b)
    if structure == "sym" and a.dtype.kind == "c":
        a = xp.tril(a) + linalg.transposed(xp.tril(a, -1)) if lower else xp.triu(a) + linalg.transposed(xp.triu(a, 1))
    elif structure in ("sym", "her"):
        a = emit("hermitian_from_triangle", a, lower=lower)
    if structure == "tridiagonal":
        a = xp.triu(xp.tril(a, 1), -1)
    return linalg.general(a, b, SINGULAR, transposed)


@scipy_twin("inv")
def inv(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    assume_a: str | None = None,
    lower: bool = False,
) -> TracedArray:
    x = square_matrix(finite(a, check_finite), "Expected square matrix, got a1.shape={shape}")
    (x,) = of_lapack(x)
    return _structured(x, linalg.identity_like(x), assume_a, bool(lower), False)


@scipy_twin("det")
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> TracedArray:
    x = square_matrix(finite(a, check_finite), "Last 2 dimensions of the array must be square but received shape {shape}.")
    return linalg.determinant(cast(x, np.complex128 if x.dtype.kind == "c" else np.float64))


@scipy_twin("norm")
def norm_of(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True) -> TracedArray:
    x = finite(a, check_finite)
    if axis is None and not keepdims and x.ndim == 1 and x.size and x.dtype.char in "fdFD" and (ord is None or ord == 2):
        return weak(cast(euclidean(x), np.float64), "float")  # BLAS returns a Python float
    return norm(x, ord, axis, keepdims)


@scipy_twin("lu_factor")
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[TracedArray, TracedArray]:
    """Return the LU factors and pivots. Unlike SciPy, no warning is issued for a singular matrix."""
    packed, pivots = _lu(rectangle(a, check_finite))
    return packed, cast(pivots[..., : min(packed.shape[-2:])], np.int32)


def _lu(x: TracedArray) -> tuple[TracedArray, TracedArray]:
    packed, pivots = emit("lu", x, form=form_of(x))
    return packed, pivots


@scipy_twin("lu")
def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True, p_indices: bool = False
) -> tuple[TracedArray, ...]:
    x = finite(a, check_finite)
    if x.ndim < 2:
        raise ValueError("The input array must be at least two-dimensional.")
    (x,) = of_lapack(x)
    *batch, m, n = x.shape
    k = min(m, n)
    packed, pivots = _lu(x)
    left, upper = packed[..., :k], xp.triu(packed[..., :k, :])
    lower = xp.tril(left, -1) + lifted(np.eye, m, k, dtype=x.dtype)
    if not x.size:
        empty: Any = np.empty((*batch, 0), np.int32) if p_indices else np.empty((*batch, 0, 0), linalg.real_dtype(x.dtype))
        return (lower, upper) if permute_l else (as_traced(empty), lower, upper)
    perm = emit("permutation", pivots, inverse=False)
    at = [*(positions(perm.shape, axis) for axis in range(len(batch))), perm]
    if permute_l:
        moved = emit("scatter_set", full(lower.shape, 0, x.dtype), *at, lower, axes=tuple(range(len(batch) + 1)))
        return moved, upper
    if p_indices:
        order = emit(
            "scatter_set", full(perm.shape, 0, np.int64), *at, positions(perm.shape, len(batch)), axes=tuple(range(len(at)))
        )
        return cast(order, np.int64 if (m, n) == (1, 1) else np.int32), lower, upper
    permutation = xp.expand_dims(perm, -2) == lifted(np.arange, m)[:, None]
    dtype = x.dtype if (m, n) == (1, 1) else linalg.real_dtype(x.dtype)
    return cast(permutation, dtype), lower, upper


@scipy_twin("lu_solve")
def lu_solve(lu_and_piv: Any, b: Any, trans: Any = 0, overwrite_b: bool = False, check_finite: bool = True) -> TracedArray:
    packed, pivots = (as_traced(x) for x in lu_and_piv)
    y = finite(b, check_finite)
    fits(packed, y, "Shapes of lu {a} and b {b} are incompatible")
    packed, y = of_lapack(packed, y)
    packed, is_transposed = _trans(packed, trans)
    return solved(functools.partial(_by_pivots, packed, pivots, is_transposed), y)


def _by_pivots(packed: TracedArray, pivots: TracedArray, trans: bool, b: TracedArray) -> TracedArray:
    batch, n = broadcast_shapes(packed.shape[:-2], b.shape[:-2]), packed.shape[-1]
    packed, b = broadcast_to(packed, (*batch, n, n)), broadcast_to(b, (*batch, *b.shape[-2:]))
    pivots = broadcast_to(cast(pivots, np.int64), (*batch, n))
    emit("check", (pivots >= 0) & (pivots < n), error="ValueError", message="a pivot is out of range")
    perm = emit("permutation", pivots, inverse=False)
    at = [*(positions(perm.shape, k) for k in range(len(batch))), perm]
    axes = tuple(range(len(batch) + 1))
    if not trans:
        rows = emit("gather", b, *at, axes=axes)
        return linalg.triangular(packed, linalg.triangular(packed, rows, True, unit=True), False)
    x = linalg.triangular(packed, linalg.triangular(packed, b, False, True), True, True, True)
    result: TracedArray = emit("scatter_set", full(x.shape, 0, x.dtype), *at, x, axes=axes)
    return result
