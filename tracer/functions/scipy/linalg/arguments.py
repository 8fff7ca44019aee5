"""What the functions of scipy.linalg share: which calls are ours, checks of arguments, the dtype in which SciPy computes."""

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
    """Decorator: the function stands for these of scipy.linalg where an argument is traced."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_traced = any(map(holds_traced, args)) or any(map(holds_traced, kwargs.values()))
            return (function if is_traced else resolve(f"scipy.linalg.{names[0]}"))(*args, **kwargs)

        twin(*(f"scipy.linalg.{name}" for name in names))(call)
        return function

    return register


def finite(x: Any, check_finite: bool) -> TracedArray:
    found = strong(x)
    if check_finite and found.dtype.kind in "fcV":
        emit("check", xp.isfinite(found), error="ValueError", message="array must not contain infs or NaNs")
    return found


@functools.cache
def _dtypeof_lapack(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which SciPy computes on arrays of these."""
    find = resolve("scipy.linalg.blas.find_best_blas_type")
    return np.dtype(find([np.empty((1, 1), dtype) for dtype in dtypes])[1])


def of_lapack(*arrays: TracedArray) -> list[TracedArray]:
    dtype = _dtypeof_lapack(*(x.dtype for x in arrays))
    return [cast(x, dtype) for x in arrays]


def for_schur(x: TracedArray) -> TracedArray:
    """In the dtype of SciPy's Schur forms, which take small integers for large ones."""
    return cast(x, np.float64) if x.dtype.kind in "iu" else of_lapack(x)[0]


def square_matrix(x: TracedArray, message: str) -> TracedArray:
    """``{shape}`` in the message stands for the shape."""
    if x.ndim < 2 or x.shape[-2] != x.shape[-1]:
        raise ValueError(message.format(shape=x.shape))
    return x


def solved(solve: Callable[[TracedArray], TracedArray], b: TracedArray) -> TracedArray:
    """``solve`` of matrices, for a vector or matrices."""
    return solve(expand(b, (1,)))[..., 0] if b.ndim == 1 else solve(b)


def fits(a: TracedArray, b: TracedArray, message: str) -> None:
    if b.ndim < 1 or a.shape[-1] != b.shape[0 if b.ndim == 1 else -2]:
        raise ValueError(message.format(a=a.shape, b=b.shape))


def nonzero(x: TracedArray, message: str) -> None:
    emit("check", x != 0, error="LinAlgError", message=message)


def rectangle(a: Any, check_finite: bool = True) -> TracedArray:
    """A stack of matrices, in a dtype of LAPACK."""
    x = finite(a, check_finite)
    if x.ndim < 2:
        raise ValueError("expected matrix")
    return of_lapack(x)[0]


def vector(x: Any, function: str) -> TracedArray:
    found = strong(x)
    if found.ndim > 1:
        raise TraceError(f"scipy.linalg.{function} of an array of {found.ndim} axes is not supported; pass a vector")
    return found if found.ndim else expand(found, (0,))


def alike(*arrays: TracedArray) -> list[TracedArray]:
    """Stacks of matrices with one batch."""
    batch = broadcast_shapes(*(x.shape[:-2] for x in arrays))
    return [broadcast_to(x, (*batch, *x.shape[-2:])) for x in arrays]
