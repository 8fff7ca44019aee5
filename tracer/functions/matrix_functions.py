"""Functions of matrices from scipy.linalg: the exponential and those that are made of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

from pullback.tracer.array import TracedArray, as_traced, cast, emit
from pullback.tracer.functions import linalg
from pullback.tracer.functions.common import reshaped, xp
from pullback.tracer.functions.linalg_arguments import alike, finite, scipy_twin
from pullback.tracer.functions.products import strong


def _square(x: TracedArray) -> TracedArray:
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError("expected square array_like input")
    return x


def result_dtype(x: TracedArray) -> Any:
    """SciPy's dtype of a function of matrices."""
    single = x.dtype.kind in "fVc" and x.dtype.itemsize <= (8 if x.dtype.kind == "c" else 4)
    if x.dtype.kind == "c":
        return np.complex64 if single else np.complex128
    return np.float32 if single else np.float64


def exponential(x: TracedArray) -> TracedArray:
    """In double precision."""
    found: TracedArray = emit("expm", linalg.in_double(x, np.dtype(result_dtype(x))))
    return found


@scipy_twin("expm")
def expm(A: Any) -> TracedArray:
    """By the method that SciPy has for matrices of large norm, in float64."""
    x = strong(A)
    if x.ndim < 2 and x.size != 1:
        raise LinAlgError("The input array must be at least two-dimensional")
    x = reshaped(x, (1, 1)) if x.ndim < 2 else x
    if x.shape[-2] != x.shape[-1]:
        raise LinAlgError("Last 2 dimensions of the array must be square")
    return cast(exponential(x), result_dtype(x))


def _joined(rows: Any) -> TracedArray:
    found: TracedArray = xp.concatenate([xp.concatenate(row, -1) for row in rows], -2)
    return found


@scipy_twin("expm_frechet")
def expm_frechet(A: Any, E: Any, method: str | None = None, compute_expm: bool = True, check_finite: bool = True) -> Any:
    """The derivative along E is a block of an exponential: N. Higham, Functions of Matrices (2008), section 10.6."""
    x, y = finite(A, check_finite), finite(E, check_finite)
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError("expected A to be a square matrix")
    if y.ndim < 2 or y.shape[-2] != y.shape[-1]:
        raise ValueError("expected E to be a square matrix")
    if x.shape[-2:] != y.shape[-2:]:
        raise ValueError("expected A and E to be the same shape")
    if method not in (None, "SPS", "blockEnlarge"):
        raise ValueError(f"Unknown implementation {method}")
    x, y = alike(*(linalg.in_double(k, np.result_type(x.dtype, y.dtype)) for k in (x, y)))
    n = x.shape[-1]
    found = exponential(_joined([[x, y], [xp.zeros_like(x), x]]))
    derivative = found[..., :n, n:]
    return (found[..., :n, :n], derivative) if compute_expm else derivative


def _cos_and_sin(A: Any) -> tuple[TracedArray, TracedArray]:
    """The exponential of [[0, -a], [a, 0]] is [[cos a, -sin a], [sin a, cos a]]."""
    x = _square(as_traced(A))
    dtype, n = result_dtype(x), x.shape[-1]
    x = linalg.in_double(x, np.dtype(dtype))
    zero = xp.zeros_like(x)
    found = exponential(_joined([[zero, -x], [x, zero]]))
    return cast(found[..., :n, :n], dtype), cast(found[..., n:, :n], dtype)


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
