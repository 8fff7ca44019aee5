"""Helpers shared by scipy.linalg: registration, checks of arguments, and the dtype in which SciPy computes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.core.op import resolve
from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import broadcast_shapes, broadcast_to, cast, emit, expand, holds_traced
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.products import strong
from pullback.tracer.user_code.errors import TraceError


def scipy_twin(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register the decorated function as the replacement of these scipy.linalg functions; it is called where an argument is
    traced."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_traced = any(map(holds_traced, args)) or any(map(holds_traced, kwargs.values()))
            return (function if is_traced else resolve(f"scipy.linalg.{names[0]}"))(*args, **kwargs)

        twin(*(f"scipy.linalg.{name}" for name in names))(call)
        return function

    return register


def finite(x: Any, check_finite: bool) -> TracedArray:
    array = strong(x)
    if check_finite and array.dtype.kind in "fcV":
        emit("check", xp.isfinite(array), error="ValueError", message="array must not contain infs or NaNs")
    return array


@functools.cache
def _dtypeof_lapack(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype in which SciPy computes on arrays of these dtypes."""
    find = resolve("scipy.linalg.blas.find_best_blas_type")
    return np.dtype(find([np.empty((1, 1), dtype) for dtype in dtypes])[1])


def of_lapack(*arrays: TracedArray) -> list[TracedArray]:
    dtype = _dtypeof_lapack(*(x.dtype for x in arrays))
    return [cast(x, dtype) for x in arrays]


def for_schur(x: TracedArray) -> TracedArray:
    """Convert to the dtype of SciPy's Schur forms, which treat small integers as large ones."""
    return cast(x, np.float64) if x.dtype.kind in "iu" else of_lapack(x)[0]


def square_matrix(x: TracedArray, message: str) -> TracedArray:
    """Return ``x`` if it is a stack of square matrices, else raise ValueError; ``{shape}`` in the message is replaced by its
    shape."""
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError(message.format(shape=x.shape))
    return x


def solved(solve: Callable[[TracedArray], TracedArray], b: TracedArray) -> TracedArray:
    """Apply ``solve``, which takes matrices, to a vector or matrices ``b``."""
    return solve(expand(b, (1,)))[..., 0] if b.ndim == 1 else solve(b)


def fits(a: TracedArray, b: TracedArray, message: str) -> None:
    if b.ndim < 1 or a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
        raise ValueError(message.format(a=a.shape, b=b.shape))


def nonzero(x: TracedArray, message: str) -> None:
    emit("check", x != 0, error="LinAlgError", message=message)


def rectangle(a: Any, check_finite: bool = True) -> TracedArray:
    """Return a stack of matrices in a dtype of LAPACK."""
    x = finite(a, check_finite)
    if x.ndim < 2:
        raise ValueError("expected matrix")
    return of_lapack(x)[0]


def vector(x: Any, function: str) -> TracedArray:
    array = strong(x)
    if array.ndim > 1:
        raise TraceError(f"scipy.linalg.{function} of an array of {array.ndim} axes is not supported; pass a vector")
    return array if array.ndim else expand(array, (0,))


def common_batch(*arrays: TracedArray) -> list[TracedArray]:
    """Broadcast stacks of matrices to common batch axes."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in arrays))
    return [broadcast_to(x, (*batch, *x.shape[-2:])) for x in arrays]
