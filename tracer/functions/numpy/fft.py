"""np.fft: transforms along axes, composed of the four unscaled one-axis ops fft, ifft, rfft and irfft.

An axis is cropped, or padded with zeros, to the requested length before it is transformed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.core.types import COMPLEX_OF, dtype_of
from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import extent_of, lifted
from pullback.tracer.arrays.arguments import as_array, axis_of, part, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, full
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.views import update
from pullback.tracer.user_code.errors import TraceError

# norm of a transform -> norm that gives the same factor in the inverse transform
SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def swapped(norm: Any) -> Any:
    """Return the norm that gives the same factor in the opposite direction. Raises ValueError as NumPy does."""
    try:
        return SWAPPED[norm]
    except (KeyError, TypeError):
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".') from None


def floats(a: Any) -> TracedArray:
    """Convert to the precision in which NumPy transforms an array: float32, float64 or the complex numbers of these."""
    x = as_traced(a)
    if x.dtype.kind == "c":
        return x
    return cast(x, np.float32 if x.dtype.itemsize <= 4 and x.dtype.kind not in "biu" else np.float64)


def complexes(x: TracedArray) -> TracedArray:
    """Convert to complex numbers of the same precision."""
    return x if x.dtype.kind == "c" else cast(x, COMPLEX_OF[dtype_of(x.dtype)].numpy)


def resized(x: TracedArray, n: int, axis: int) -> TracedArray:
    """Return the first ``n`` values along an axis, padded with zeros if there are fewer."""
    have = x.shape[axis]
    if n <= have:
        return part(x, axis, 0, n)
    shape = list(x.shape)
    shape[axis] = n - have
    return xp.concatenate([x, full(tuple(shape), 0, x.dtype)], axis=axis)


def length_of(n: Any, default: int) -> int:
    """Return the length of a transform, ``default`` if ``n`` is None. Raises ValueError if it is not positive."""
    length = default if n is None else extent_of(n)
    if is_value_size(length):
        raise TraceError("a Fourier transform whose length depends on values is not supported; give a fixed length by n=")
    if length < 1:
        raise ValueError(f"Invalid number of FFT data points ({length}) specified.")
    return length


def scaled(x: TracedArray, factor: Any) -> TracedArray:
    """Multiply by a real number."""
    if isinstance(factor, float) and factor == 1.0:
        return x
    if x.dtype.kind == "c":
        return emit("complex", *(xp.multiply(p, lifted(p.dtype.type, factor)) for p in (x.real, x.imag)))
    return xp.multiply(x, lifted(x.dtype.type, factor))


def factor_of(norm: Any, n: int, kind: np.dtype[Any]) -> Any:
    """Return the factor by which the norm multiplies a forward transform of length ``n``."""
    match norm:
        case None | "backward":
            return 1.0
        case "ortho":
            return lifted(_one_over_root, n, kind)
        case "forward":
            return lifted(_one_over, n, kind)
    raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward".')


def _one_over_root(n: int, kind: np.dtype[Any]) -> Any:
    return np.reciprocal(np.sqrt(n, dtype=kind))


def _one_over(n: int, kind: np.dtype[Any]) -> Any:
    return np.reciprocal(kind.type(n))


def transformed(a: Any, n: Any, axis: Any, norm: Any, routine: str) -> TracedArray:
    """Apply ``fft``, ``ifft``, ``rfft`` or ``irfft`` along one axis, as in NumPy. Raises NumPy's errors."""
    x = floats(a)
    at = axis_of(axis, x.ndim)
    if routine == "rfft" and x.dtype.kind == "c":
        raise TypeError(
            "ufunc 'rfft' not supported for the input types, and the inputs could not be safely coerced to any supported types "
            "according to the casting rule ''safe''"
        )
    count = length_of(n, 2 * (x.shape[at] - 1) if routine == "irfft" else x.shape[at])
    if routine in ("ifft", "irfft"):
        norm = swapped(norm)
    source = as_traced(a)
    real = source.dtype if source.dtype.kind == "f" else x.real.dtype
    factor = factor_of(norm, count, real)
    if routine in ("fft", "ifft"):
        return scaled(emit(routine, resized(complexes(x), count, at), axis=at), factor)
    half = count // 2 + 1
    sized = resized(x, count, at) if routine == "rfft" else resized(complexes(x), half, at)
    shape = list(x.shape)
    shape[at] = half if routine == "rfft" else count
    result = scaled(emit(routine, sized, axis=at, odd=bool(count % 2), shape=tuple(shape)), factor)
    return cast(result, real) if routine == "irfft" else result


def store_in(result: Any, out: Any) -> Any:
    """Return ``result``, after writing it into ``out`` if that is not None. Raises ValueError if ``out`` has another shape."""
    if out is None:
        return result
    if out.shape != result.shape:
        raise ValueError("output array has wrong shape.")
    update(out, result)
    return out


def _one_axis(name: str) -> Callable[..., Any]:
    @implements(getattr(np.fft, name))
    def transform(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
        return store_in(transformed(a, n, axis, norm, name), out)

    return transform


fft, ifft, rfft, irfft = map(_one_axis, ("fft", "ifft", "rfft", "irfft"))


@implements(np.fft.hfft)
def hfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
    return store_in(transformed(xp.conjugate(as_traced(a)), n, axis, swapped(norm), "irfft"), out)


@implements(np.fft.ihfft)
def ihfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
    return store_in(xp.conjugate(transformed(a, n, axis, swapped(norm), "rfft")), out)


# transforms along several axes


def plan(x: TracedArray, s: Any, axes: Any, halved: bool = False) -> list[tuple[int, int]]:
    """Return length and axis of each transform, in NumPy's order. ``halved``: the last one is the inverse of a half spectrum."""
    if axes is None:
        requested = list(range(-(x.ndim if s is None else len(s)), 0))
    else:
        requested = [operator.index(k) for k in axes]
    at = [axis_of(k, x.ndim) for k in requested]
    lengths = [x.shape[k] for k in at] if s is None else list(s)
    if len(lengths) != len(at):
        raise ValueError("Shape and axes have different lengths.")
    if halved and s is None:
        lengths[-1] = 2 * (x.shape[at[-1]] - 1)
    return [(x.shape[k] if n is None or n == -1 else extent_of(n), k) for n, k in zip(lengths, at, strict=True)]


def _many_axes(name: str, default: Any = None) -> Callable[..., Any]:
    kind = name.rstrip("2n")

    @implements(getattr(np.fft, name))
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None) -> Any:
        return store_in(transformed_along(a, s, axes, norm, kind), out)

    return transform


def transformed_along(a: Any, s: Any, axes: Any, norm: Any, kind: str) -> TracedArray:
    """Transform along several axes.

    "rfft" transforms real values along the last axis, then complex values along the others; "irfft" does so in the opposite
    order.
    """
    x = as_traced(a)
    steps = plan(x, s, axes, kind == "irfft")
    match kind:
        case "rfft":
            *others, last = steps
            x, steps, final = transformed(x, *last, norm, "rfft"), others[::-1], []
            name = "fft"
        case "irfft":
            *steps, last = steps
            name, final = "ifft", [last]
        case _:
            x, steps, final, name = as_array(x), steps[::-1], [], kind
    for n, k in steps:
        x = transformed(x, n, k, norm, name)
    for n, k in final:
        x = transformed(x, n, k, norm, "irfft")
    return x


fftn, ifftn, rfftn, irfftn = map(_many_axes, ("fftn", "ifftn", "rfftn", "irfftn"))
fft2, ifft2, rfft2, irfft2 = (_many_axes(name, (-2, -1)) for name in ("fft2", "ifft2", "rfft2", "irfft2"))


# order of frequencies


def _shifts(x: TracedArray, axes: Any, sign: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if axes is None:
        at = tuple(range(x.ndim))
    else:
        at = tuple(operator.index(k) for k in (axes if isinstance(axes, tuple | list) else (axes,)))
    return tuple(n // 2 if sign > 0 else -(n // 2) for n in (x.shape[k] for k in at)), at


@implements(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> TracedArray:
    a = as_traced(x)
    return xp.roll(a, *_shifts(a, axes, 1))


@implements(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> TracedArray:
    a = as_traced(x)
    return xp.roll(a, *_shifts(a, axes, -1))
