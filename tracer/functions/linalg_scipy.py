"""scipy.linalg on traced arrays, over the IR's factorisations.

float32 is computed in float32. ``check_finite`` is honoured, ``overwrite_a`` and ``overwrite_b`` are not needed. Structure that
``solve`` and ``inv`` would look for is not: a general matrix is factored.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.op import resolve
from pullback.tracer.array import TracedArray, as_traced, broadcast_to, cast, emit, expand, full, holds_traced, promote
from pullback.tracer.errors import TraceError
from pullback.tracer.functions import linalg, spectral
from pullback.tracer.functions.common import positions, refuse, reshaped, xp
from pullback.tracer.functions.norms import norm
from pullback.tracer.functions.products import strong
from pullback.tracer.twins import twin

NOT_POSITIVE = "a leading minor of the array is not positive definite"
SINGULAR = "A singular matrix detected"
STRUCTURES = {
    None: "general", "general": "general", "gen": "general", "pos": "pos", "positive definite": "pos",
    "sym": "sym", "symmetric": "sym", "her": "sym", "hermitian": "sym", "diagonal": "diagonal", "tridiagonal": "tridiagonal",
    "lower triangular": "lower", "upper triangular": "upper",
}  # fmt: skip


def scipy_twin(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: the function stands for one of scipy.linalg where an argument is traced."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_traced = any(map(holds_traced, args)) or any(map(holds_traced, kwargs.values()))
            return (function if is_traced else resolve(f"scipy.linalg.{name}"))(*args, **kwargs)

        twin(f"scipy.linalg.{name}")(call)
        return function

    return register


def _finite(x: Any, check_finite: bool) -> TracedArray:
    found = strong(x)
    if check_finite and found.dtype.kind in "fV":
        emit("check", xp.isfinite(found), error="ValueError", message="array must not contain infs or NaNs")
    return found


@functools.cache
def _dtype_of_lapack(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which SciPy computes on arrays of these."""
    find = resolve("scipy.linalg.blas.find_best_blas_type")
    return np.dtype(find([np.empty((1, 1), dtype) for dtype in dtypes])[1])


def _of_lapack(*arrays: TracedArray) -> list[TracedArray]:
    dtype = _dtype_of_lapack(*(x.dtype for x in arrays))
    return [cast(x, dtype) for x in arrays]


def _square(x: TracedArray, message: str) -> TracedArray:
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError(message)
    return x


def _solved(solve: Callable[[TracedArray], TracedArray], b: TracedArray) -> TracedArray:
    """``solve`` of matrices, for a vector or matrices."""
    return solve(expand(b, (1,)))[..., 0] if b.ndim == 1 else solve(b)


def _fits(a: TracedArray, b: TracedArray, message: str) -> None:
    if b.ndim < 1 or a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
        raise ValueError(message.format(a=a.shape, b=b.shape))


# Cholesky


def _factor(a: Any, lower: bool, check_finite: bool) -> TracedArray:
    x = _finite(a, check_finite)
    x = expand(x, range(2 - x.ndim)) if x.ndim < 2 else x
    _square(x, f"Input array is expected to be square but has the shape: {x.shape}.")
    (x,) = _of_lapack(x)
    factor = linalg.lower_factor(x if lower else linalg.transposed(x), NOT_POSITIVE)
    return factor if lower else linalg.transposed(factor)


@scipy_twin("cholesky")
def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> TracedArray:
    return _factor(a, lower, check_finite)


@scipy_twin("cho_factor")
def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[TracedArray, bool]:
    """The other triangle of the factor, of which SciPy promises nothing, is zero."""
    return _factor(a, lower, check_finite), lower


@scipy_twin("cho_solve")
def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> TracedArray:
    factor, lower = c_and_lower
    c, y = _finite(factor, check_finite), _finite(b, check_finite)
    _square(c, "The factored matrix c is not square.")
    _fits(c, y, "incompatible dimensions ({a} and {b})")
    c, y = _of_lapack(c, y)
    return _solved(functools.partial(_by_factor, c, lower), y)


def _by_factor(c: TracedArray, lower: bool, b: TracedArray) -> TracedArray:
    first = linalg.triangular(c, b, lower, trans=not lower)
    return linalg.triangular(c, first, lower, trans=lower)


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
    x, y = _finite(a, check_finite), _finite(b, check_finite)
    _square(x, "expected square matrix")
    _fits(x, y, "shapes of a {a} and b {b} are incompatible")
    x, y = _of_lapack(x, y)
    if not unit_diagonal:
        _nonzero(linalg.diagonal(x), "singular matrix: a zero on the diagonal")
    is_turned = _trans(trans)
    return _solved(lambda c: linalg.triangular(x, c, bool(lower), is_turned, bool(unit_diagonal)), y)


def _trans(trans: Any) -> bool:
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ValueError(f"trans={trans!r}: 0, 1, 2, 'N', 'T' or 'C' was expected")
    return trans not in (0, "N")


def _nonzero(x: TracedArray, message: str) -> None:
    emit("check", x != 0, error="LinAlgError", message=message)


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
    """By Cholesky factors for ``assume_a`` "pos", else by LU factors; of a symmetric matrix one triangle is read."""
    x, y = _finite(a, check_finite), _finite(b, check_finite)
    x, y = promote(x, y)
    single = x.dtype.kind in "fV" and x.itemsize <= 4
    x, y = (cast(k, np.float32 if single else np.float64) for k in (x, y))
    x = expand(x, range(2 - x.ndim)) if x.ndim < 2 else x
    y = expand(y, (0,)) if y.ndim == 0 else y
    _square(x, f"Expected square matrix, got a1.shape={x.shape}")
    if x.size == 1 and x.shape[-1] != y.shape[0 if y.ndim == 1 else -2]:
        _nonzero(x, SINGULAR)
        return y / reshaped(x, ())
    _fits(x, y, "incompatible shapes: a1.shape={a} and b1.shape={b}")
    return _solved(lambda c: _structured(x, c, assume_a, bool(lower), bool(transposed)), y)


def _structured(a: TracedArray, b: TracedArray, assume_a: str | None, lower: bool, transposed: bool) -> TracedArray:
    if assume_a not in STRUCTURES:
        if assume_a == "banded":
            raise TraceError("scipy.linalg.solve(assume_a='banded') is not supported; leave assume_a out")
        raise ValueError(f"{assume_a} is not a recognized matrix structure")
    structure = STRUCTURES[assume_a]
    if structure in ("lower", "upper"):
        _nonzero(linalg.diagonal(a), SINGULAR)
        return linalg.triangular(a, b, structure == "lower", transposed)
    if structure == "diagonal":
        _nonzero(linalg.diagonal(a), SINGULAR)
        return b / xp.expand_dims(linalg.diagonal(a), -1)
    if structure == "pos":
        factor = linalg.lower_factor(a if lower else linalg.transposed(a), SINGULAR)
        return _by_factor(factor, True, b)
    if structure == "sym":
        a = emit("mirror", a, lower=lower)
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
    x = _square(_finite(a, check_finite), f"Expected square matrix, got a1.shape={np.shape(a)}")
    (x,) = _of_lapack(x)
    return _structured(x, linalg.identity_like(x), assume_a, bool(lower), False)


@scipy_twin("det")
def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> TracedArray:
    x = _square(_finite(a, check_finite), f"Last 2 dimensions of the array must be square but received shape {np.shape(a)}.")
    return linalg.determinant(cast(x, np.float64))


@scipy_twin("norm")
def norm_of(a: Any, ord: Any = None, axis: Any = None, keepdims: bool = False, check_finite: bool = True) -> TracedArray:
    return norm(_finite(a, check_finite), ord, axis, keepdims)


@scipy_twin("lu_factor")
def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[TracedArray, TracedArray]:
    """No warning comes of a singular matrix."""
    x = _finite(a, check_finite)
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise TraceError(f"scipy.linalg.lu_factor of shape {x.shape} is not supported: a square matrix is needed")
    packed, pivots = emit("lu", *_of_lapack(x), form="square")
    return packed, cast(pivots, np.int32)


@scipy_twin("lu_solve")
def lu_solve(lu_and_piv: Any, b: Any, trans: Any = 0, overwrite_b: bool = False, check_finite: bool = True) -> TracedArray:
    packed, pivots = (as_traced(x) for x in lu_and_piv)
    y = _finite(b, check_finite)
    _fits(packed, y, "Shapes of lu {a} and b {b} are incompatible")
    packed, y = _of_lapack(packed, y)
    return _solved(functools.partial(_by_pivots, packed, pivots, _trans(trans)), y)


def _by_pivots(packed: TracedArray, pivots: TracedArray, trans: bool, b: TracedArray) -> TracedArray:
    batch, n = np.broadcast_shapes(packed.shape[:-2], b.shape[:-2]), packed.shape[-1]
    packed, b = broadcast_to(packed, (*batch, n, n)), broadcast_to(b, (*batch, *b.shape[-2:]))
    pivots = broadcast_to(cast(pivots, np.int64), (*batch, n))
    emit("check", (pivots >= 0) & (pivots < n), error="ValueError", message="a pivot is out of range")
    perm = emit("permutation", pivots)
    at = [*(positions(perm.shape, k) for k in range(len(batch))), perm]
    axes = tuple(range(len(batch) + 1))
    if not trans:
        rows = emit("gather", b, *at, axes=axes)
        return linalg.triangular(packed, linalg.triangular(packed, rows, True, unit=True), False)
    x = linalg.triangular(packed, linalg.triangular(packed, b, False, True), True, True, True)
    found: TracedArray = emit("scatter_set", full(x.shape, 0, x.dtype), *at, x, axes=axes)
    return found


# eigenvalues and singular values


def _eigen(a: Any, b: Any, lower: bool, check_finite: bool, refused: dict[str, Any]) -> tuple[TracedArray, TracedArray]:
    refuse("linalg.eigh", **refused)
    x = _square(_finite(a, check_finite), 'expected square "a" matrix')
    if b is None:
        (x,) = _of_lapack(x)
        return spectral.symmetric_eigen(x, lower)
    y = _square(_finite(b, check_finite), 'expected square "b" matrix')
    if x.shape != y.shape:
        raise ValueError(f"wrong b dimensions {y.shape}, should be {x.shape}")
    x, y = _of_lapack(x, y)
    factor = linalg.lower_factor(y if lower else linalg.transposed(y), "B is not positive definite: it cannot be factored")
    half = linalg.triangular(factor, emit("mirror", x, lower=lower), True)
    values, vectors = spectral.symmetric_eigen(linalg.triangular(factor, linalg.transposed(half), True), True)
    return values, linalg.triangular(factor, vectors, True, trans=True)


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
    """Eigenvectors have the signs that driver "evd" gives them."""
    refused = {"subset_by_index": subset_by_index, "subset_by_value": subset_by_value, "type": None if type == 1 else type}
    found = _eigen(a, b, bool(lower), check_finite, refused)
    return found[0] if eigvals_only else found


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
    refused = {"subset_by_index": subset_by_index, "subset_by_value": subset_by_value, "type": None if type == 1 else type}
    return _eigen(a, b, bool(lower), check_finite, refused)[0]


def _rectangle(a: Any, check_finite: bool) -> TracedArray:
    x = _finite(a, check_finite)
    if x.ndim < 2:
        raise ValueError("expected matrix")
    return _of_lapack(x)[0]


@scipy_twin("svd")
def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    x = _rectangle(a, check_finite)
    if not compute_uv:
        return spectral.singular_values(x)
    return spectral.full_svd(x, full_matrices, "scipy.linalg.svd")


@scipy_twin("svdvals")
def svdvals(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> TracedArray:
    return spectral.singular_values(_rectangle(a, check_finite))


@scipy_twin("pinv")
def pinv(a: Any, *, atol: Any = None, rtol: Any = None, return_rank: bool = False, check_finite: bool = True) -> Any:
    x = _rectangle(a, check_finite)
    least = 0.0 if atol is None else atol
    scale = max(x.shape[-2:]) * np.finfo(x.dtype).eps if rtol is None else rtol
    found, counts = spectral.pseudo_inverse(x, lambda top: least + top * scale)
    return (found, xp.sum(counts, axis=-1)) if return_rank else found


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
    x = _rectangle(a, check_finite)
    if pivoting or mode == "raw" or (mode in ("full", "r") and x.shape[-2] > x.shape[-1]):
        raise TraceError(f"scipy.linalg.qr(mode={mode!r}, pivoting={pivoting}) cannot be compiled; use mode='economic'")
    q, r = spectral.thin_qr(x)
    return (r,) if mode == "r" else (q, r)


@scipy_twin("expm")
def expm(A: Any) -> TracedArray:
    """By the method that SciPy has for matrices of large norm, in float64."""
    x = strong(A)
    if x.ndim < 2 and x.size != 1:
        raise np.linalg.LinAlgError("The input array must be at least two-dimensional")
    x = reshaped(x, (1, 1)) if x.ndim < 2 else x
    if x.shape[-2] != x.shape[-1]:
        raise np.linalg.LinAlgError("Last 2 dimensions of the array must be square")
    dtype = np.float32 if x.dtype.kind in "fV" and x.itemsize <= 4 else np.float64
    return cast(emit("expm", cast(x, np.float64)), dtype)


# matrices of a form


@scipy_twin("block_diag")
def block_diag(*arrs: Any) -> TracedArray:
    blocks = [strong(a) for a in arrs]
    blocks = promote(*(expand(a, range(2 - a.ndim)) if a.ndim < 2 else a for a in blocks))
    batch = np.broadcast_shapes(*(a.shape[:-2] for a in blocks))
    columns = sum(a.shape[-1] for a in blocks)
    rows, before = [], 0
    for a in blocks:
        height, width = a.shape[-2:]
        sides = [full((*batch, height, n), 0, a.dtype) for n in (before, columns - before - width)]
        rows.append(xp.concatenate([sides[0], broadcast_to(a, (*batch, height, width)), sides[1]], -1))
        before += width
    return xp.concatenate(rows, -2)


@scipy_twin("toeplitz")
def toeplitz(c: Any, r: Any = None) -> TracedArray:
    first = _vector(c, "toeplitz")
    row = first if r is None else _vector(r, "toeplitz")
    n, m = first.shape[0], row.shape[0]
    values = xp.concatenate([first[::-1], row[1:]])
    return values[n - 1 - np.arange(n)[:, None] + np.arange(m)]


@scipy_twin("hankel")
def hankel(c: Any, r: Any = None) -> TracedArray:
    first = _vector(c, "hankel")
    last = xp.zeros_like(first) if r is None else _vector(r, "hankel")
    values = xp.concatenate([first, last[1:]])
    return values[np.arange(first.shape[0])[:, None] + np.arange(last.shape[0])]


@scipy_twin("circulant")
def circulant(c: Any) -> TracedArray:
    x = _vector(c, "circulant")
    n = np.arange(x.shape[0])
    return x[(n[:, None] - n) % max(math.prod(x.shape), 1)]


def _vector(x: Any, function: str) -> TracedArray:
    found = strong(x)
    if found.ndim > 1:
        raise TraceError(f"scipy.linalg.{function} of an array of {found.ndim} axes is not supported; pass a vector")
    return found if found.ndim else expand(found, (0,))
