"""Functions of matrices from scipy.linalg: the exponential and functions composed of it, roots, logarithms and Schur forms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from pullback.tracer.arrays.arguments import refuse, reshaped, xp
from pullback.tracer.arrays.make import as_traced, cast, emit
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.linalg import decompositions as spectral
from pullback.tracer.functions.numpy.linalg import solve as linalg
from pullback.tracer.functions.numpy.products import strong
from pullback.tracer.functions.scipy.linalg.arguments import common_batch, finite, for_schur, of_lapack, scipy_twin


def _square(x: TracedArray) -> TracedArray:
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError("expected square array_like input")
    return x


def result_dtype(x: TracedArray) -> Any:
    """Return SciPy's dtype of the result of a function of matrices."""
    single = x.dtype.kind in "fVc" and x.dtype.itemsize <= (8 if x.dtype.kind == "c" else 4)
    if x.dtype.kind == "c":
        return np.complex64 if single else np.complex128
    return np.float32 if single else np.float64


def exponential(x: TracedArray) -> TracedArray:
    """Return the exponential, in double precision."""
    result: TracedArray = emit("expm", linalg.in_double(x, np.dtype(result_dtype(x))))
    return result


@scipy_twin("expm")
def expm(A: Any) -> TracedArray:
    """Return the exponential by SciPy's method for matrices of large norm, computed in float64."""
    x = strong(A)
    if x.ndim < 2 and x.size != 1:
        raise LinAlgError("The input array must be at least two-dimensional")
    x = reshaped(x, (1, 1)) if x.ndim < 2 else x
    if x.shape[-2] != x.shape[-1]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return cast(exponential(x), result_dtype(x))


def _block_matrix(rows: Any) -> TracedArray:
    result: TracedArray = xp.concatenate([xp.concatenate(row, -1) for row in rows], -2)
    return result


@scipy_twin("expm_frechet")
def expm_frechet(A: Any, E: Any, method: str | None = None, compute_expm: bool = True, check_finite: bool = True) -> Any:
    """Return the derivative along E, a block of one exponential: N. Higham, Functions of Matrices (2008), section 10.6."""
    x, y = finite(A, check_finite), finite(E, check_finite)
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError("expected A to be a square matrix")
    if y.ndim < 2 or y.shape[-2] != y.shape[-1]:
        raise ValueError("expected E to be a square matrix")
    if x.shape[-2:] != y.shape[-2:]:
        raise ValueError("expected A and E to be the same shape")
    if method not in (None, "SPS", "blockEnlarge"):
        raise ValueError(f"Unknown implementation {method}")
    x, y = common_batch(*(linalg.in_double(k, np.result_type(x.dtype, y.dtype)) for k in (x, y)))
    n = x.shape[-1]
    blocks = exponential(_block_matrix([[x, y], [xp.zeros_like(x), x]]))
    derivative = blocks[..., :n, n:]
    return (blocks[..., :n, :n], derivative) if compute_expm else derivative


def _cos_and_sin(A: Any) -> tuple[TracedArray, TracedArray]:
    """Return cosine and sine: the exponential of [[0, -a], [a, 0]] is [[cos a, -sin a], [sin a, cos a]]."""
    x = _square(as_traced(A))
    dtype, n = result_dtype(x), x.shape[-1]
    x = linalg.in_double(x, np.dtype(dtype))
    zero = xp.zeros_like(x)
    blocks = exponential(_block_matrix([[zero, -x], [x, zero]]))
    return cast(blocks[..., :n, :n], dtype), cast(blocks[..., n:, :n], dtype)


@scipy_twin("cosm")
def cosm(A: Any) -> TracedArray:
    return _cos_and_sin(A)[0]


@scipy_twin("sinm")
def sinm(A: Any) -> TracedArray:
    return _cos_and_sin(A)[1]


@scipy_twin("tanm")
def tanm(A: Any) -> TracedArray:
    cosine, sine = _cos_and_sin(A)
    return linalg.general(cosine, sine, "A singular matrix detected")


def _halves(A: Any) -> tuple[TracedArray, TracedArray, Any]:
    x = _square(as_traced(A))
    return exponential(x) / 2, exponential(-x) / 2, result_dtype(x)


@scipy_twin("coshm")
def coshm(A: Any) -> TracedArray:
    up, down, dtype = _halves(A)
    return cast(up + down, dtype)


@scipy_twin("sinhm")
def sinhm(A: Any) -> TracedArray:
    up, down, dtype = _halves(A)
    return cast(up - down, dtype)


@scipy_twin("tanhm")
def tanhm(A: Any) -> TracedArray:
    up, down, dtype = _halves(A)
    return cast(linalg.general(up + down, up - down, "A singular matrix detected"), dtype)


def _check_real(info: TracedArray, name: str) -> None:
    message = f"scipy.linalg.{name} of this real matrix is complex; pass the matrix as a complex one"
    emit("check", info == 0, error="LinAlgError", message=message)


def _root_or_log(op: str, x: TracedArray, name: str) -> TracedArray:
    """Return the square root or the logarithm (``op``), in double precision."""
    result, info = emit(op, linalg.in_double(x, np.dtype(result_dtype(x))))
    if x.dtype.kind != "c":
        _check_real(info, name)
    assert isinstance(result, TracedArray)
    return result


@scipy_twin("sqrtm")
def sqrtm(A: Any, disp: Any = None, blocksize: Any = None) -> TracedArray:
    """Return the square root; a real matrix gives a real one, and must have no negative eigenvalues."""
    _refuse_deprecated("sqrtm", disp=disp, blocksize=blocksize)
    x = strong(A)
    if x.ndim < 2:
        raise LinAlgError("The input array must be at least two-dimensional")
    if x.shape[-2] != x.shape[-1]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    emit("check", xp.isfinite(x), error="LinAlgError", message="sqrtm: array must not contain infs or NaNs")
    return cast(_root_or_log("sqrtm", x, "sqrtm"), result_dtype(x))


def _refuse_deprecated(name: str, **arguments: Any) -> None:
    refuse(f"scipy.linalg.{name}", **{key: value for key, value in arguments.items() if value is not True})


@scipy_twin("logm")
def logm(A: Any, disp: Any = None) -> TracedArray:
    """Return the logarithm; a real matrix gives a real one, and must have no negative eigenvalues."""
    _refuse_deprecated("logm", disp=disp)
    x = _square(finite(A, True))
    return cast(_root_or_log("logm", x, "logm"), np.complex128 if x.dtype.kind == "c" else np.float64)


@scipy_twin("fractional_matrix_power")
def fractional_matrix_power(A: Any, t: Any) -> TracedArray:
    """Return a power: its integral part by products, the fractional part by the logarithm."""
    x = _square(strong(A))
    power = float(t)
    integral = math.floor(power)
    if power == integral:
        return linalg.matrix_power(x, integral)
    matrix = linalg.in_double(finite(x, True), np.dtype(result_dtype(x)))
    fractional = exponential((power - integral) * _root_or_log("logm", matrix, "fractional_matrix_power"))
    return linalg.matrix_power(matrix, integral) @ fractional if integral else fractional


@scipy_twin("signm")
def signm(A: Any, disp: Any = None) -> TracedArray:
    """Return ``a`` times the inverse of the square root of its square."""
    _refuse_deprecated("signm", disp=disp)
    x = _square(finite(A, True))
    dtype = for_schur(x).dtype
    x = linalg.in_double(x, dtype)
    return cast(linalg.general(_root_or_log("sqrtm", x @ x, "signm"), x, "A singular matrix detected"), dtype)


@scipy_twin("funm")
def funm(A: Any, func: Any, disp: bool = True) -> TracedArray:
    """Return ``func`` of a matrix, by its eigenvectors, which must be linearly independent.

    A real matrix gives a real result. ``func`` is called with the complex vector of eigenvalues.
    """
    refuse("scipy.linalg.funm", disp=None if disp else disp)
    x = _square(finite(A, True))
    dtype = for_schur(x).dtype
    values, vectors = spectral.eigen(linalg.in_double(x, dtype))
    scaled = vectors * as_traced(func(values))[..., None, :]
    solution = linalg.general(linalg.transposed(vectors), linalg.transposed(scaled), "A singular matrix detected")
    result = linalg.transposed(solution)
    if dtype.kind == "c":
        return cast(result, dtype)
    limit = 1e-9 * (1 + xp.max(xp.abs(xp.real(result)), initial=0))
    _check_real(cast(xp.max(xp.abs(xp.imag(result)), initial=0) > limit, np.int32), "funm")
    return cast(xp.real(result), dtype)


# Schur forms


@scipy_twin("schur")
def schur(
    a: Any, output: str = "real", lwork: Any = None, overwrite_a: bool = False, sort: Any = None, check_finite: bool = True
) -> tuple[TracedArray, TracedArray]:
    if output not in ("real", "complex", "r", "c"):
        raise ValueError("argument must be 'real', or 'complex'")
    refuse("scipy.linalg.schur", sort=sort)
    x = finite(a, check_finite)
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError("expected square matrix")
    x = for_schur(x)
    return _schur(_complex(x) if output in ("complex", "c") else x)


def _complex(x: TracedArray) -> TracedArray:
    return cast(x, np.complex64 if x.dtype in (np.float32, np.complex64) else np.complex128)


def _schur(x: TracedArray) -> tuple[TracedArray, TracedArray]:
    form, vectors, info = emit("schur", x)
    emit("check", info == 0, error="LinAlgError", message="Schur form not found. Possibly ill-conditioned.")
    assert isinstance(form, TracedArray)
    assert isinstance(vectors, TracedArray)
    return form, vectors


@scipy_twin("rsf2csf")
def rsf2csf(T: Any, Z: Any, check_finite: bool = True) -> tuple[TracedArray, TracedArray]:
    """Return the complex Schur form from the real one."""
    x, y = (_complex(of_lapack(finite(k, check_finite))[0]) for k in (T, Z))
    for name, k in (("Z", y), ("T", x)):
        if k.ndim < 2 or k.shape[-2] != k.shape[-1]:
            raise ValueError(f"Input '{name}' must be square.")
    if x.shape[-2:] != y.shape[-2:]:
        raise ValueError(f"Input array shapes must match: Z: {y.shape} vs. T: {x.shape}")
    form, vectors = _schur(x)
    return form, y @ vectors
