"""np.fft: transforms along axes, compositions of the four along one axis that are not scaled.

An axis is cropped, or filled up with zeros, to the length asked for before it is transformed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.core.types import COMPLEX_OF, dtype_of
from pullback.ir.shapes.symbolic import extent_of, lifted
from pullback.tracer.arrays.arguments import as_array, axis_of, part, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, full
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.views import update

# norm -> that of the inverse transform
SWAPPED = {None: "forward", "backward": "forward", "ortho": "ortho", "forward": "backward"}


def swapped(norm: Any) -> Any:
    """The norm as the other direction has it. Raises ValueError as NumPy does."""
    try:
        return SWAPPED[norm]
    except (KeyError, TypeError):
        raise ValueError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".') from None


def floats(a: Any) -> TracedArray:
    """An array in the precision in which NumPy transforms it: float32, float64 or complex numbers of those."""
    x = as_traced(a)
    if x.dtype.kind == "c":
        return x
    return cast(x, np.float32 if x.dtype.itemsize <= 4 and x.dtype.kind not in "biu" else np.float64)


def complexes(x: TracedArray) -> TracedArray:
    """As complex numbers."""
    return x if x.dtype.kind == "c" else cast(x, COMPLEX_OF[dtype_of(x.dtype)].numpy)


def resized(x: TracedArray, n: int, axis: int) -> TracedArray:
    """The first n values along an axis, zeros after its end."""
    have = x.shape[axis]
    if n <= have:
        return part(x, axis, 0, n)
    shape = list(x.shape)
    shape[axis] = n - have
    return xp.concatenate([x, full(tuple(shape), 0, x.dtype)], axis=axis)


def length_of(n: Any, default: int) -> int:
    """The length of a transform. Raises ValueError where it is not positive."""
    found = default if n is None else extent_of(n)
    if found < 1:
        raise ValueError(f"Invalid number of FFT data points ({found}) specified.")
    return found


def scaled(x: TracedArray, factor: Any) -> TracedArray:
    """Times a real number."""
    if isinstance(factor, float) and factor == 1.0:
        return x
    if x.dtype.kind == "c":
        return emit("complex", *(xp.multiply(p, lifted(p.dtype.type, factor)) for p in (x.real, x.imag)))
    return xp.multiply(x, lifted(x.dtype.type, factor))


def factor_of(norm: Any, n: int, kind: np.dtype[Any]) -> Any:
    """By what a forward transform is multiplied."""
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
    """One of ``fft``, ``ifft``, ``rfft``, ``irfft`` along one axis, as in NumPy. Raises NumPy's errors."""
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
    given = as_traced(a)
    real = given.dtype if given.dtype.kind == "f" else x.real.dtype
    factor = factor_of(norm, count, real)
    if routine in ("fft", "ifft"):
        return scaled(emit(routine, resized(complexes(x), count, at), axis=at), factor)
    half = count // 2 + 1
    sized = resized(x, count, at) if routine == "rfft" else resized(complexes(x), half, at)
    shape = list(x.shape)
    shape[at] = half if routine == "rfft" else count
    found = scaled(emit(routine, sized, axis=at, odd=bool(count % 2), shape=tuple(shape)), factor)
    return cast(found, real) if routine == "irfft" else found


def finished(found: Any, out: Any) -> Any:
    """The result, in ``out`` if that is given. Raises ValueError for one of another shape."""
    if out is None:
        return found
    if out.shape != found.shape:
        raise ValueError("output array has wrong shape.")
    update(out, found)
    return out


def _one(name: str) -> Callable[..., Any]:
    @implements(getattr(np.fft, name))
    def transform(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
        return finished(transformed(a, n, axis, norm, name), out)

    return transform


fft, ifft, rfft, irfft = map(_one, ("fft", "ifft", "rfft", "irfft"))


@implements(np.fft.hfft)
def hfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
    return finished(transformed(xp.conjugate(as_traced(a)), n, axis, swapped(norm), "irfft"), out)


@implements(np.fft.ihfft)
def ihfft(a: Any, n: Any = None, axis: Any = -1, norm: Any = None, out: Any = None) -> Any:
    return finished(xp.conjugate(transformed(a, n, axis, swapped(norm), "rfft")), out)


# along several axes


def plan(x: TracedArray, s: Any, axes: Any, halved: bool = False) -> list[tuple[int, int]]:
    """The length and the axis of each transform, in NumPy's order. ``halved``: the last is of a half spectrum."""
    if axes is None:
        given = list(range(-(x.ndim if s is None else len(s)), 0))
    else:
        given = [operator.index(k) for k in axes]
    at = [axis_of(k, x.ndim) for k in given]
    lengths = [x.shape[k] for k in at] if s is None else list(s)
    if len(lengths) != len(at):
        raise ValueError("Shape and axes have different lengths.")
    if halved and s is None:
        lengths[-1] = 2 * (x.shape[at[-1]] - 1)
    return [(x.shape[k] if n is None or n == -1 else extent_of(n), k) for n, k in zip(lengths, at, strict=True)]


def _several(name: str, default: Any = None) -> Callable[..., Any]:
    kind = name.rstrip("2n")

    @implements(getattr(np.fft, name))
    def transform(a: Any, s: Any = None, axes: Any = default, norm: Any = None, out: Any = None) -> Any:
        return finished(along(a, s, axes, norm, kind), out)

    return transform


def along(a: Any, s: Any, axes: Any, norm: Any, kind: str) -> TracedArray:
    """A transform along several axes: of real values along the last one, then complex ones along the others, or the other way
    round."""
    x = as_traced(a)
    steps = plan(x, s, axes, kind == "irfft")
    match kind:
        case "rfft":
            *others, last = steps
            x, steps, rest = transformed(x, *last, norm, "rfft"), others[::-1], []
            name = "fft"
        case "irfft":
            *steps, last = steps
            name, rest = "ifft", [last]
        case _:
            x, steps, rest, name = as_array(x), steps[::-1], [], kind
    for n, k in steps:
        x = transformed(x, n, k, norm, name)
    for n, k in rest:
        x = transformed(x, n, k, norm, "irfft")
    return x


fftn, ifftn, rfftn, irfftn = map(_several, ("fftn", "ifftn", "rfftn", "irfftn"))
fft2, ifft2, rfft2, irfft2 = (_several(name, (-2, -1)) for name in ("fft2", "ifft2", "rfft2", "irfft2"))


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
