"""numpy.linalg on traced arrays: eigenvalues, singular values, QR factors, and the functions built on them.

As in NumPy, float32 is computed in float64 and rounded, and integers give float64. A result that has no derivative, such as
the eigenvectors of equal eigenvalues, gets NaN as its derivative.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from pullback.ir.shapes.by_value import holds_value_size
from pullback.tracer.arrays.arguments import NOVALUE, choose_where, or_default, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, expand, full
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg.solve import adjoint, in_double, real_dtype, result_dtype, square, transposed
from pullback.tracer.user_code.check_messages import Limit
from pullback.tracer.user_code.errors import TraceError

EigResult: Any = type(np.linalg.eig(np.ones((1, 1))))
EighResult: Any = type(np.linalg.eigh(np.ones((1, 1))))
SVDResult: Any = type(np.linalg.svd(np.ones((1, 1))))
QRResult: Any = type(np.linalg.qr(np.ones((1, 1))))


# shared by the functions of NumPy and SciPy; the matrices are float32 or float64


def symmetric_eigen(a: TracedArray, lower: bool) -> tuple[TracedArray, TracedArray]:
    """Return eigenvalues and eigenvectors of symmetric matrices, read from one triangle."""
    values, vectors, info = emit("eigh", a, lower=lower)
    emit("check", info == 0, error="LinAlgError", message="Eigenvalues did not converge")
    return values, vectors


def thin_svd(a: TracedArray) -> tuple[TracedArray, TracedArray, TracedArray]:
    u, s, vt, info = emit("svd", a, form=form_of(a), full=False)
    emit("check", info == 0, error="LinAlgError", message="SVD did not converge")
    return u, s, vt


def form_of(a: TracedArray) -> str:
    m, n = a.shape[-2:]
    return "square" if m == n else "wide" if m < n else "tall"


def singular_values(a: TracedArray) -> TracedArray:
    return thin_svd(a)[1]


def any_svd(a: TracedArray, full: bool) -> tuple[TracedArray, TracedArray, TracedArray]:
    if not full or a.shape[-2] == a.shape[-1]:
        return thin_svd(a)
    u, s, vt, info = emit("svd", a, form=form_of(a), full=True)
    emit("check", info == 0, error="LinAlgError", message="SVD did not converge")
    return u, s, vt


def by_eigenvalues(a: TracedArray) -> tuple[TracedArray, TracedArray, TracedArray]:
    """Return the singular value decomposition of Hermitian matrices, from their eigenvalues."""
    values, vectors = symmetric_eigen(a, True)
    order = xp.argsort(xp.abs(values), axis=-1)[..., ::-1]
    sign, size = (xp.take_along_axis(x, order, -1) for x in (xp.sign(values), xp.abs(values)))
    u = xp.take_along_axis(vectors, order[..., None, :], -1)
    return u, size, adjoint(u * sign[..., None, :])


def any_qr(a: TracedArray, full: bool) -> tuple[TracedArray, TracedArray]:
    """Return orthonormal columns (as many as there are rows if ``full``) and an upper trapezoidal matrix."""
    m, n = a.shape[-2:]
    if m < n:
        q, r = emit("qr", a[..., :m], full=False)
        return q, xp.concatenate([r, adjoint(q) @ a[..., m:]], -1)
    q, r = emit("qr", a, full=full and m > n)
    if full and m > n:
        r = xp.concatenate([r, xp.zeros_like(a[..., n:, :])], -2)
    return q, r


def pseudo_inverse(a: TracedArray, cutoff: Any, is_cut: bool) -> tuple[TracedArray, TracedArray]:
    """Return the pseudo-inverse, and which singular values are kept: those above ``cutoff(largest)``.

    ``is_cut``: the dropped ones may be larger than rounding errors.
    """
    form = form_of(a)
    u, s, vt = thin_svd(a)
    counts = s > cutoff(xp.max(s, axis=-1, keepdims=True, initial=0))
    zero, one = full(s.shape, 0, s.dtype), full(s.shape, 1, s.dtype)
    inverse = choose_where(counts, one / choose_where(counts, s, one), zero)
    result: TracedArray = emit("pinv", a, u, s, vt, inverse, form=form, has_cutoff=bool(is_cut))
    return result, counts


def least_squares(
    a: TracedArray, b: TracedArray, rcond: Any, is_cut: bool
) -> tuple[TracedArray, TracedArray, TracedArray, TracedArray]:
    """Solve least squares by the pseudo-inverse; returns solution, residuals, rank and singular values.

    With more rows than columns the columns must be independent, because the shape of the residuals depends on it.
    """
    m, n = a.shape
    inverse, counts = pseudo_inverse(a, lambda top: rcond * top, is_cut)
    rank = xp.sum(counts, dtype=np.int32)
    solution = inverse @ b
    residuals = full((0,), 0, real_dtype(a.dtype))
    if m > n:
        message = Limit("lstsq of dependent columns cannot be compiled; use np.linalg.pinv")
        emit("check", rank == n, error="LinAlgError", message=message)
        residuals = xp.sum(xp.abs(b - a @ solution) ** 2, axis=0)
    return solution, residuals, rank, singular_values(a)


def matrices_of(x: Any) -> TracedArray:
    a = as_traced(x)
    if a.ndim < 2:
        raise LinAlgError(f"{a.ndim}-dimensional array given. Array must be at least two-dimensional")
    return a


# numpy.linalg


def _eigen(a: Any, UPLO: Any) -> tuple[TracedArray, TracedArray]:
    UPLO = UPLO.upper()
    if UPLO not in ("L", "U"):
        raise ValueError("UPLO argument must be 'L' or 'U'")
    x = square(a)
    dtype = result_dtype(x)
    values, vectors = symmetric_eigen(in_double(x, dtype), UPLO == "L")
    return cast(values, real_dtype(dtype)), cast(vectors, dtype)


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: Any = "L") -> Any:
    return EighResult(*_eigen(a, UPLO))


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> TracedArray:
    return _eigen(a, UPLO)[0]


def eigen(a: TracedArray) -> tuple[TracedArray, TracedArray]:
    """Return eigenvalues and eigenvectors of general matrices."""
    values, vectors, info = emit("eig", a)
    emit("check", info == 0, error="LinAlgError", message="Eigenvalues did not converge")
    return values, vectors


def _general(a: Any) -> tuple[TracedArray, TracedArray]:
    x = square(a)
    emit("check", xp.isfinite(x), error="LinAlgError", message="Array must not contain infs or NaNs")
    dtype = result_dtype(x)
    complex_dtype = np.complex64 if dtype in (np.float32, np.complex64) else np.complex128
    values, vectors = eigen(in_double(x, dtype))
    return cast(values, complex_dtype), cast(vectors, complex_dtype)


@implements(np.linalg.eig)
def eig(a: Any) -> Any:
    """Return complex eigenvalues and eigenvectors, complex also where NumPy's are real."""
    return EigResult(*_general(a))


@implements(np.linalg.eigvals)
def eigvals(a: Any) -> TracedArray:
    """Return complex eigenvalues, complex also where NumPy's are real."""
    return _general(a)[0]


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    x = square(a) if hermitian else matrices_of(a)
    dtype = result_dtype(x)
    x = in_double(x, dtype)
    if not compute_uv:
        values = xp.sort(xp.abs(symmetric_eigen(x, True)[0]), axis=-1)[..., ::-1] if hermitian else singular_values(x)
        return cast(values, real_dtype(dtype))
    u, s, vt = by_eigenvalues(x) if hermitian else any_svd(x, bool(full_matrices))
    return SVDResult(cast(u, dtype), cast(s, real_dtype(dtype)), cast(vt, dtype))


@implements(np.linalg.svdvals)
def svdvals(x: Any, /) -> TracedArray:
    values: TracedArray = svd(x, compute_uv=False)
    return values


@implements(np.linalg.qr)
def qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r", "raw"):
        raise ValueError(f"Unrecognized mode '{mode}'")
    x = matrices_of(a)
    dtype = result_dtype(x)
    if mode == "raw":
        packed, scales = emit("reflections", in_double(x, dtype), form=form_of(x))
        return cast(transposed(packed), dtype), cast(scales, dtype)
    q, r = (cast(factor, dtype) for factor in any_qr(in_double(x, dtype), mode == "complete"))
    return r if mode == "r" else QRResult(q, r)


@implements(np.linalg.pinv)
def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = NOVALUE) -> TracedArray:
    if rcond is not None and rtol is not NOVALUE:
        raise ValueError("`rtol` and `rcond` can't be both set.")
    x = square(a) if hermitian else matrices_of(a)
    dtype = result_dtype(x)
    is_cut = rcond is not None or (rtol is not NOVALUE and rtol is not None)
    if rcond is None:
        rcond = max(x.shape[-2:]) * np.finfo(dtype).eps if rtol is None else or_default(rtol, 1e-15)
    limit = xp.expand_dims(as_traced(rcond), -1)
    x = in_double(x, dtype)
    x = emit("hermitian_from_triangle", x, lower=True) if hermitian else x
    return cast(pseudo_inverse(x, lambda top: limit * top, is_cut)[0], dtype)


@implements(np.linalg.lstsq)
def lstsq(a: Any, b: Any, rcond: Any = None) -> tuple[TracedArray, TracedArray, TracedArray, TracedArray]:
    x, y = as_traced(a), as_traced(b)
    is_vector = y.ndim == 1
    y = expand(y, (1,)) if is_vector else y
    for k in (x, y):
        if k.ndim != 2:
            raise LinAlgError(f"{k.ndim}-dimensional array given. Array must be two-dimensional")
    m, n = x.shape
    if holds_value_size((m, n)):
        raise TraceError(
            "np.linalg.lstsq of a matrix whose shape depends on values; write np.linalg.pinv(a.T @ a) @ (a.T @ b), or give the "
            "rows that do not count the weight 0"
        )
    if m != y.shape[0]:
        raise LinAlgError("Incompatible dimensions")
    dtype = result_dtype(x, y)
    eps = np.finfo(np.float64).eps
    is_cut = rcond is not None and rcond != -1
    rcond = eps * max(m, n) if rcond is None else eps if rcond == -1 else rcond
    solution, residuals, rank, values = least_squares(in_double(x, dtype), in_double(y, dtype), rcond, is_cut)
    real = real_dtype(dtype)
    return cast(solution[:, 0] if is_vector else solution, dtype), cast(residuals, real), rank, cast(values, real)


@implements(np.linalg.matrix_rank)
def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> TracedArray:
    if rtol is not None and tol is not None:
        raise ValueError("`tol` and `rtol` can't be both set.")
    x = as_traced(A)
    if x.ndim < 2:
        return cast(xp.any(x != 0), np.int64)
    values = svd(x, compute_uv=False, hermitian=hermitian)
    if tol is None:
        scale = max(x.shape[-2:]) * np.finfo(values.dtype).eps if rtol is None else xp.expand_dims(as_traced(rtol), -1)
        limit = xp.max(values, axis=-1, keepdims=True, initial=0) * scale
    else:
        limit = xp.expand_dims(as_traced(tol), -1)
    return xp.count_nonzero(values > limit, axis=-1)
