"""Structured equations of scipy.linalg: banded, Toeplitz and circulant systems, Sylvester and Lyapunov equations."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import reshaped, xp
from pullback.tracer.arrays.make import as_traced, broadcast_shapes, broadcast_to, cast, emit, expand, promote
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg import solve as linalg
from pullback.tracer.functions.numpy.linalg.solve import adjoint, conjugate
from pullback.tracer.functions.scipy.linalg.arguments import (
    common_batch,
    finite,
    for_schur,
    of_lapack,
    scipy_twin,
    solved,
    square_matrix,
)
from pullback.tracer.functions.scipy.linalg.special_matrices import circulants, toeplitz
from pullback.tracer.user_code.errors import TraceError

# banded systems


def _banded(bands: TracedArray, b: TracedArray, lower: int, upper: int, message: str) -> TracedArray:
    def solve(columns: TracedArray) -> TracedArray:
        batch = broadcast_shapes(bands.shape[:-2], columns.shape[:-2])
        operands = [broadcast_to(x, (*batch, *x.shape[-2:])) for x in (columns, bands)]
        solution, info = emit("banded_solve", *operands, lower=lower, upper=upper)
        emit("check", info == 0, error="LinAlgError", message=message)
        assert isinstance(solution, TracedArray)
        return solution

    return solved(solve, b)


@scipy_twin("solve_banded")
def solve_banded(
    l_and_u: Any, ab: Any, b: Any, overwrite_ab: bool = False, overwrite_b: bool = False, check_finite: bool = True
) -> TracedArray:
    lower, upper = (operator.index(k) for k in l_and_u)
    arrays = (finite(x, check_finite) for x in (ab, b))
    bands, y = of_lapack(*(cast(x, np.float64) if x.dtype.kind in "biu" else x for x in arrays))
    if bands.shape[-1] != y.shape[0 if y.ndim == 1 else -2]:
        raise ValueError("shapes of ab and b are not compatible.")
    if lower + upper + 1 != bands.shape[-2]:
        raise ValueError(
            f"invalid values for the number of lower and upper diagonals: l+u+1 ({lower + upper + 1}) does not equal "
            f"ab.shape[0] ({bands.shape[-2]})"
        )
    return _banded(bands, y, lower, upper, "singular matrix")


@scipy_twin("solveh_banded")
def solveh_banded(
    ab: Any,
    b: Any,
    overwrite_ab: bool = False,
    overwrite_b: bool = False,
    lower: bool = False,
    check_finite: bool = True,
) -> TracedArray:
    """Solve by LU factors of all diagonals; a Cholesky factorisation only checks that the matrix is positive definite."""
    half, y = of_lapack(finite(ab, check_finite), finite(b, check_finite))
    if half.shape[-1] != y.shape[0 if y.ndim == 1 else -2]:
        raise ValueError("shapes of ab and b are not compatible.")
    count = half.shape[-2] - 1
    rows = [half[..., k if lower else count - k, :] for k in range(count + 1)]
    if half.dtype.kind == "c":
        rows[0] = cast(xp.real(rows[0]), half.dtype)
    below = rows[1:] if lower else [conjugate(_shifted(row, -k)) for k, row in enumerate(rows[1:], 1)]
    above = [conjugate(_shifted(row, k)) for k, row in enumerate(below, 1)]
    bands = xp.stack([*above[::-1], rows[0], *below], -2)
    info = emit("banded_minors", xp.stack([rows[0], *below], -2), lower=count)
    emit("check", info == 0, error="LinAlgError", message="a leading minor is not positive definite")
    return _banded(bands, y, count, count, "singular matrix")


def _shifted(row: TracedArray, by: int) -> TracedArray:
    return emit("shift", row, axis=row.ndim - 1, offset=by)


# Toeplitz and circulant systems


def _toeplitz(c_or_cr: Any, check_finite: bool) -> TracedArray:
    c, r = c_or_cr if isinstance(c_or_cr, tuple) else (c_or_cr, None)
    first = finite(c, check_finite)
    return toeplitz(first, None if r is None else finite(r, check_finite))


@scipy_twin("solve_toeplitz")
def solve_toeplitz(c_or_cr: Any, b: Any, check_finite: bool = True) -> TracedArray:
    """Solve by LU factors of the full matrix."""
    a, y = _toeplitz(c_or_cr, check_finite), finite(b, check_finite)
    if a.shape[-1] != y.shape[0 if y.ndim == 1 else -2]:
        raise ValueError("incompatible dimensions")
    a, y = promote(a, y)
    dtype = np.complex128 if a.dtype.kind == "c" else np.float64
    a, y = cast(a, dtype), cast(y, dtype)
    return solved(lambda columns: linalg.general(a, columns, "Singular principal minor"), y)


@scipy_twin("matmul_toeplitz")
def matmul_toeplitz(c_or_cr: Any, x: Any, check_finite: bool = False, workers: Any = None) -> TracedArray:
    a, y = promote(_toeplitz(c_or_cr, check_finite), finite(x, check_finite))
    if a.shape[-1] != y.shape[0 if y.ndim == 1 else -2]:
        raise ValueError("incompatible dimensions")
    dtype = np.complex128 if a.dtype.kind == "c" else np.float64
    return cast(a, dtype) @ cast(y, dtype)


@scipy_twin("solve_circulant")
def solve_circulant(
    c: Any, b: Any, singular: str = "raise", tol: Any = None, caxis: int = -1, baxis: int = 0, outaxis: int = 0
) -> TracedArray:
    """Solve by LU factors of the full matrix."""
    x, y = (k if k.ndim else expand(k, (0,)) for k in (as_traced(c), as_traced(b)))
    if singular != "raise" or tol is not None:
        raise TraceError("scipy.linalg.solve_circulant with singular='lstsq' or a tol cannot be compiled; leave them out")
    n, m = x.shape[caxis], y.shape[baxis]
    if n != m:
        raise ValueError(f"Shapes of c {x.shape} and b {y.shape} are incompatible")
    x, y = promote(xp.moveaxis(x, caxis, -1), xp.moveaxis(y, baxis, -1))
    is_single = x.dtype.kind in "fVc" and x.itemsize <= (8 if x.dtype.kind == "c" else 4)
    single, double = (np.complex64, np.complex128) if x.dtype.kind == "c" else (np.float32, np.float64)
    right = expand(cast(y, double), (y.ndim,))
    solution = linalg.general(circulants(cast(x, double)), right, "near singular circulant matrix.")[..., 0]
    solution = cast(solution, single if is_single else double)
    return xp.moveaxis(solution, -1, outaxis)


# Sylvester and Lyapunov


def _schur(a: TracedArray) -> tuple[TracedArray, TracedArray]:
    form, vectors, info = emit("schur", a)
    emit("check", info == 0, error="LinAlgError", message="Schur form not found. Possibly ill-conditioned.")
    return form, vectors


def sylvester(a: TracedArray, b: TracedArray, c: TracedArray) -> TracedArray:
    """Return x with a x + x b = c."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in (a, b, c)))
    a, b, c = (broadcast_to(x, (*batch, *x.shape[-2:])) for x in (a, b, c))
    (ta, za), (tb, zb) = _schur(a), _schur(b)
    solution: TracedArray = emit("sylvester", c, a, b, ta, tb, za, zb, transposed=False)
    return solution


@scipy_twin("solve_sylvester")
def solve_sylvester(a: Any, b: Any, q: Any) -> TracedArray:
    x, y, z = of_lapack(*(for_schur(finite(k, False)) for k in (a, b, q)))
    for k in (x, y):
        square_matrix(k, "expected square matrix")
    if z.ndim < 2 or z.shape[-2:] != (x.shape[-1], y.shape[-1]):
        raise ValueError(f"shapes {x.shape}, {y.shape} and {z.shape} do not fit an equation a x + x b = q")
    return sylvester(x, y, z)


def _lyapunov_operands(a: Any, q: Any) -> tuple[TracedArray, TracedArray]:
    x, y = as_traced(a), as_traced(q)
    for name, k in (("a", x), ("q", y)):
        if k.ndim < 2 or k.shape[-2] != k.shape[-1]:
            raise ValueError(f"Matrix {name} should be square.")
    if x.shape[-1] != y.shape[-1]:
        raise ValueError("Matrix a and q should have the same shape.")
    first, second = of_lapack(for_schur(x), for_schur(y))
    return first, second


@scipy_twin("solve_continuous_lyapunov", "solve_lyapunov")
def solve_continuous_lyapunov(a: Any, q: Any) -> TracedArray:
    x, y = _lyapunov_operands(a, q)
    return sylvester(x, adjoint(x), y)


@scipy_twin("solve_discrete_lyapunov")
def solve_discrete_lyapunov(a: Any, q: Any, method: str | None = None) -> TracedArray:
    """Return x with a x a^H - x + q = 0."""
    x, y = (cast(finite(k, True), np.complex128 if k.dtype.kind == "c" else np.float64) for k in _lyapunov_operands(a, q))
    n = x.shape[-1]
    solver = (method or ("bilinear" if n >= 10 else "direct")).lower()
    if solver == "direct":
        x, y = common_batch(x, y)
        product = x[..., :, None, :, None] * conjugate(x)[..., None, :, None, :]
        system: Any = lifted(np.eye, n * n, dtype=x.dtype) - reshaped(product, (*x.shape[:-2], n * n, n * n))
        right = reshaped(y, (*y.shape[:-2], n * n, 1))
        return reshaped(linalg.general(system, right, "A singular matrix detected"), y.shape)
    if solver != "bilinear":
        raise ValueError(f"Unknown solver {solver}")
    identity, a_h = lifted(np.eye, n, dtype=x.dtype), adjoint(x)
    inverse = linalg.general(a_h + identity, linalg.identity_like(a_h), "A singular matrix detected")
    b = (a_h - identity) @ inverse
    c = 2 * (adjoint(inverse) @ y @ inverse)
    return sylvester(adjoint(b), b, -c)
