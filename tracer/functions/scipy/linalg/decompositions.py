"""scipy.linalg on traced arrays: eigenvalues, singular values, QR factors, and the functions built on them.

float32 is computed in float32. A result that has no derivative, such as the eigenvectors of equal eigenvalues, gets NaN as its
derivative.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import refuse, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, expand, full
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg import decompositions as spectral
from pullback.tracer.functions.numpy.linalg import solve as linalg
from pullback.tracer.functions.numpy.linalg.solve import adjoint, conjugate
from pullback.tracer.functions.scipy.linalg.arguments import common_batch, finite, of_lapack, rectangle, scipy_twin, square_matrix
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.errors import TraceError

# eigenvalues


@scipy_twin("eig")
def eig(
    a: Any,
    b: Any = None,
    left: bool = False,
    right: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> Any:
    """Return complex eigenvalues and eigenvectors, complex also where SciPy's are real."""
    refuse("scipy.linalg.eig", instead="solve(b, a) has the same eigenvalues", b=b)
    refuse("scipy.linalg.eig", instead="they are the vectors of the adjoint matrix", left=left or None)
    refuse("scipy.linalg.eig", homogeneous_eigvals=homogeneous_eigvals or None)
    values, vectors = spectral.eigen(square_matrix(rectangle(a, check_finite), "expected square matrix"))
    return (values, vectors) if right else values


@scipy_twin("eigvals")
def eigvals(
    a: Any,
    b: Any = None,
    overwrite_a: bool = False,
    *,
    overwrite_b: bool = False,
    check_finite: bool = True,
    homogeneous_eigvals: bool = False,
) -> TracedArray:
    """Return the eigenvalues. The last parameters are keyword-only because their order depends on SciPy's version."""
    values: TracedArray = eig(a, b, False, False, overwrite_a, False, check_finite, homogeneous_eigvals)
    return values


def _eigen(
    a: Any, b: Any, lower: bool, check_finite: bool, subset: Any, kind: int, refused: dict[str, Any]
) -> tuple[TracedArray, TracedArray]:
    refuse("scipy.linalg.eigh", instead="leave it out, and take what you need of all eigenvalues", **refused)
    x = square_matrix(finite(a, check_finite), 'expected square "a" matrix')
    if kind not in (1, 2, 3):
        raise ValueError(f'"type" must be 1, 2 or 3, not {kind}')
    operand = of_lapack(x) if b is None else None
    values, vectors = spectral.symmetric_eigen(operand[0], lower) if operand else _generalized(x, b, lower, check_finite, kind)
    if subset is None:
        return values, vectors
    low, high = (operator.index(k) for k in subset)
    if not 0 <= low <= high < x.shape[-1]:
        raise ValueError(
            f"Requested eigenvalue indices are not valid. Valid range is [0, {x.shape[-1] - 1}] and start <= end, "
            f"but start={low}, end={high} is given"
        )
    return values[..., low : high + 1], vectors[..., low : high + 1]


def _generalized(x: TracedArray, b: Any, lower: bool, check_finite: bool, kind: int) -> tuple[TracedArray, TracedArray]:
    """Reduce to a symmetric problem by the Cholesky factor l of b: the matrix is l^-1 a l^-H, for types 2 and 3 l^H a l."""
    y = square_matrix(finite(b, check_finite), 'expected square "b" matrix')
    if x.shape[-2:] != y.shape[-2:]:
        raise ValueError(f"wrong b dimensions {y.shape}, should be {x.shape}")
    x, y = common_batch(*of_lapack(x, y))
    factor = linalg.lower_factor(y if lower else adjoint(y), "B is not positive definite: it cannot be factored")
    full_matrix = emit("hermitian_from_triangle", x, lower=lower)
    if kind == 1:
        half = linalg.triangular(factor, full_matrix, True)
        product = linalg.triangular(factor, adjoint(half), True)
    else:
        product = adjoint(factor) @ full_matrix @ factor
    values, vectors = spectral.symmetric_eigen(product, True)
    return values, factor @ vectors if kind == 3 else linalg.triangular(conjugate(factor), vectors, True, trans=True)


@scipy_twin("eigh")
def eigh(
    a: Any,
    b: Any = None,
    *,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: Any = None,
    subset_by_value: Any = None,
    driver: str | None = None,
) -> Any:
    """Return eigenvalues and eigenvectors; the eigenvectors have the signs that driver "evd" gives them."""
    result = _eigen(a, b, bool(lower), check_finite, subset_by_index, type, {"subset_by_value": subset_by_value})
    return result[0] if eigvals_only else result


@scipy_twin("eigvalsh")
def eigvalsh(
    a: Any,
    b: Any = None,
    *,
    lower: bool = True,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    type: int = 1,
    check_finite: bool = True,
    subset_by_index: Any = None,
    subset_by_value: Any = None,
    driver: str | None = None,
) -> TracedArray:
    return _eigen(a, b, bool(lower), check_finite, subset_by_index, type, {"subset_by_value": subset_by_value})[0]


@scipy_twin("eigh_tridiagonal")
def eigh_tridiagonal(
    d: Any,
    e: Any,
    eigvals_only: bool = False,
    select: Any = "a",
    select_range: Any = None,
    check_finite: bool = True,
    tol: float = 0.0,
    lapack_driver: str = "auto",
) -> Any:
    """Solve by the full matrix, as driver "stevd" does."""
    x, y = finite(d, check_finite), finite(e, check_finite)
    for k in (x, y):
        if k.ndim < 1:
            raise ValueError("expected a 1-D array")
        if k.dtype.kind == "c":
            raise TypeError("Only real arrays currently supported")
    n = x.shape[-1]
    if n != y.shape[-1] + 1:
        raise ValueError(f"d ({n}) must have one more element than e ({y.shape[-1]})")
    x, y = of_lapack(x, y)
    row, column = lifted(np.arange, n)[:, None], lifted(np.arange, n)
    padded = xp.concatenate([y, xp.zeros_like(x[..., :1])], -1)
    below = xp.where(row == column + 1, padded[..., None, :], x.dtype.type(0))
    full_matrix = xp.where(row == column, x[..., :, None], below + linalg.transposed(below))
    subset = None
    match select:
        case "i" | 2:
            subset = select_range
        case "v" | 1:
            refuse("scipy.linalg.eigh_tridiagonal", instead="their number depends on values; use select='i'", select=select)
        case "a" | 0:
            pass
        case _:
            raise ValueError(f"invalid argument for select: {select!r}")
    result = _eigen(full_matrix, None, True, False, subset, 1, {})
    return result[0] if eigvals_only else result


@scipy_twin("eigvalsh_tridiagonal")
def eigvalsh_tridiagonal(
    d: Any,
    e: Any,
    select: Any = "a",
    select_range: Any = None,
    check_finite: bool = True,
    tol: float = 0.0,
    lapack_driver: str = "auto",
) -> TracedArray:
    values: TracedArray = eigh_tridiagonal(d, e, True, select, select_range, check_finite, tol, lapack_driver)
    return values


# singular values


@scipy_twin("svd")
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    x = rectangle(a, check_finite)
    return spectral.any_svd(x, bool(full_matrices)) if compute_uv else spectral.singular_values(x)


@scipy_twin("svdvals")
def svdvals(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> TracedArray:
    return spectral.singular_values(rectangle(a, check_finite))


@scipy_twin("diagsvd")
def diagsvd(s: Any, M: int, N: int) -> TracedArray:
    x = as_traced(s)
    if x.shape[-1] not in (M, N):
        raise ValueError("Length of s must be M or N.")
    square = xp.where(np.eye(x.shape[-1], dtype=bool), x[..., None, :], x.dtype.type(0))
    sides = [(0, 0)] * (x.ndim - 1)
    result: TracedArray = xp.pad(square, [*sides, (0, M - x.shape[-1]), (0, N - x.shape[-1])])
    return result


@scipy_twin("pinv")
def pinv(a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False, check_finite: bool = True) -> Any:
    x = rectangle(a, check_finite)
    inverse, counts = spectral.pseudo_inverse(x, _cutoff(x, atol, rtol), (atol, rtol) != (None, None))
    return (inverse, xp.sum(counts, axis=-1)) if return_rank else inverse


def _cutoff(x: TracedArray, atol: Any, rtol: Any) -> Any:
    least = 0.0 if atol is None else atol
    scale = max(x.shape[-2:]) * np.finfo(x.dtype).eps if rtol is None else rtol
    return lambda top: least + top * scale


@scipy_twin("pinvh")
def pinvh(
    a: Any, atol: Any = None, rtol: Any = None, lower: bool = True, return_rank: bool = False, check_finite: bool = True
) -> Any:
    x = square_matrix(rectangle(a, check_finite), "expected square matrix")
    mirrored = emit("hermitian_from_triangle", x, lower=bool(lower))
    inverse, counts = spectral.pseudo_inverse(mirrored, _cutoff(x, atol, rtol), (atol, rtol) != (None, None))
    return (inverse, xp.sum(counts, axis=-1)) if return_rank else inverse


@scipy_twin("lstsq")
def lstsq(
    a: Any,
    b: Any,
    cond: Any = None,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    lapack_driver: str | None = None,
) -> Any:
    """Solve least squares as numpy.linalg.lstsq does."""
    x, y = finite(a, check_finite), finite(b, check_finite)
    if x.ndim != 2 or y.ndim not in (1, 2):
        raise TraceError("scipy.linalg.lstsq of stacks of matrices is not supported; call it for each")
    if x.shape[0] != y.shape[0]:
        raise ValueError(f"Shape mismatch: a and b should have the same number of rows ({x.shape[0]} != {y.shape[0]}).")
    if lapack_driver not in (None, "gelsd", "gelsy", "gelss"):
        raise ValueError(f'LAPACK driver "{lapack_driver}" is not found')
    x, y = of_lapack(x, y)
    least = np.finfo(x.dtype).eps if cond is None else cond
    columns = expand(y, (1,)) if y.ndim == 1 else y
    solution, residuals, rank, values = spectral.least_squares(x, columns, least, cond is not None)
    if y.ndim == 1:
        solution, residuals = solution[:, 0], residuals[0] if residuals.size else residuals
    if lapack_driver == "gelsy":
        return solution, full((0,), 0, x.dtype), cast(rank, np.int64), None
    return solution, residuals if x.shape[0] > x.shape[1] else cast(residuals, x.dtype), cast(rank, np.int64), values


@scipy_twin("null_space")
def null_space(
    A: Any, rcond: Any = None, *, overwrite_a: bool = False, check_finite: bool = True, lapack_driver: str = "gesdd"
) -> TracedArray:
    """Return an orthonormal basis of the null space of matrices of full rank; a lower rank fails the check."""
    x = rectangle(A, check_finite)
    _, s, vt = spectral.any_svd(x, True)
    _check_full_rank(x, s, rcond, "null_space")
    return adjoint(vt[..., s.shape[-1] :, :])


@scipy_twin("orth")
def orth(A: Any, rcond: Any = None) -> TracedArray:
    """Return an orthonormal basis of the range of matrices of full rank; a lower rank fails the check."""
    x = rectangle(A)
    u, s, _ = spectral.thin_svd(x)
    _check_full_rank(x, s, rcond, "orth")
    return u


def _check_full_rank(x: TracedArray, s: TracedArray, rcond: Any, name: str) -> None:
    scale = np.finfo(s.dtype).eps * max(x.shape[-2:]) if rcond is None else rcond
    reason = "the shape of the result depends on it; use svd"
    message = Limit(f"scipy.linalg.{name} of a matrix of lower rank cannot be compiled: {reason}")
    emit("check", s > xp.max(s, axis=-1, keepdims=True, initial=0) * scale, error="LinAlgError", message=message)


@scipy_twin("polar")
def polar(a: Any, side: str = "right") -> tuple[TracedArray, TracedArray]:
    if side not in ("right", "left"):
        raise ValueError("`side` must be either 'right' or 'left'")
    x = as_traced(a)
    if x.ndim < 2:
        raise ValueError("`a` must be a 2-D array.")
    x = rectangle(x)
    u, s, vt = spectral.thin_svd(x)
    factor = emit("unitary", x, u, s, vt, form=spectral.form_of(x))
    product = adjoint(factor) @ x if side == "right" else x @ adjoint(factor)
    return factor, (product + adjoint(product)) * x.dtype.type(0.5)


@scipy_twin("orthogonal_procrustes")
def orthogonal_procrustes(A: Any, B: Any, check_finite: bool = True) -> tuple[TracedArray, TracedArray]:
    x, y = finite(A, check_finite), finite(B, check_finite)
    if x.ndim != 2:
        raise ValueError(f"expected ndim to be 2, but observed {x.ndim}")
    if x.shape != y.shape:
        raise ValueError(f"the shapes of A and B differ ({x.shape} vs {y.shape})")
    x, y = of_lapack(x, y)
    product = adjoint(x) @ y
    u, s, vt = spectral.thin_svd(product)
    return emit("unitary", product, u, s, vt, form="square"), xp.sum(s, axis=-1)


# orthogonal factors


@scipy_twin("qr")
def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    if mode not in ("full", "r", "economic", "raw"):
        raise ValueError("Mode argument should be one of ['full', 'r', 'economic', 'raw']")
    x = rectangle(a, check_finite)
    pivots = None
    if pivoting:
        pivots = emit("column_pivots", x)
        x = xp.take_along_axis(x, pivots[..., None, :], -1)
    if mode == "raw":
        packed, scales = emit("reflections", x, form=spectral.form_of(x))
        result: tuple[Any, ...] = (packed, scales), xp.triu(packed[..., : min(x.shape[-2:]), :])
    else:
        q, r = spectral.any_qr(x, mode in ("full", "r"))
        result = (r,) if mode == "r" else (q, r)
    return result if pivots is None else (*result, cast(pivots, np.int32))


@scipy_twin("qr_multiply")
def qr_multiply(
    a: Any,
    c: Any,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> Any:
    if mode not in ("left", "right"):
        raise ValueError(f"Mode argument can only be 'left' or 'right' but not '{mode}'")
    q, *others = qr(a, mode="economic", pivoting=pivoting)
    x = as_traced(c)
    q = xp.conj(q) if conjugate else q
    if x.ndim == 1:
        return (q @ x if mode == "left" else x @ q), *others
    return (q @ x if mode == "left" else x @ q), *others


@scipy_twin("hessenberg")
def hessenberg(a: Any, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Any:
    """Return the Hessenberg form; a matrix of at most two rows is returned unchanged, in its own dtype."""
    matrix = square_matrix(finite(a, check_finite), "expected square matrix")
    if matrix.shape[-1] <= 2:
        return (matrix, as_traced(np.broadcast_to(np.eye(matrix.shape[-1]), matrix.shape))) if calc_q else matrix
    h, q = emit("hessenberg", rectangle(matrix, False))
    return (h, q) if calc_q else h
