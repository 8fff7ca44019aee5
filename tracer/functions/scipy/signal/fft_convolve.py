"""Convolutions by Fourier transforms, after scipy.signal.fftconvolve."""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core.op import resolve
from pullback.tracer.arrays.arguments import axis_of, part, xp
from pullback.tracer.arrays.make import as_traced, full
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.fft import floats, transformed_along


def fast_length(n: int, real: bool) -> int:
    length: int = resolve("scipy.fft.next_fast_len")(n, real)
    return length


def _convolution_axes(a: TracedArray, b: TracedArray, mode: str, axes: Any) -> tuple[list[int], bool]:
    """Return the axes along which neither array has extent 1, and whether the second array is the larger one."""
    if axes is None:
        requested = list(range(a.ndim))
    else:
        requested = [axis_of(k, a.ndim) for k in (axes if np.ndim(axes) else [axes])]
        if not requested:
            raise ValueError("when provided, axes cannot be empty")
        if len(set(requested)) != len(requested):
            raise ValueError("all axes must be unique")
    s, t = a.shape, b.shape
    convolved_axes = [k for k in requested if s[k] != 1 and t[k] != 1]
    if not all(s[k] == t[k] or 1 in (s[k], t[k]) for k in range(a.ndim) if k not in convolved_axes):
        raise ValueError(f"incompatible shapes for in1 and in2: {s} and {t}")
    if mode != "valid":
        return convolved_axes, False
    if not (all(s[k] >= t[k] for k in convolved_axes) or all(t[k] >= s[k] for k in convolved_axes)):
        raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")
    return convolved_axes, not all(s[k] >= t[k] for k in convolved_axes)


@twin_of("scipy.signal.fftconvolve", "scipy.signal.oaconvolve")
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    a, b = as_traced(in1), as_traced(in2)
    if not a.ndim and not b.ndim:
        return a * b
    if a.ndim != b.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    if not a.size or not b.size:
        return full((0,), 0, np.float64)
    at, is_swapped = _convolution_axes(a, b, mode, axes)
    a, b = (b, a) if is_swapped else (a, b)
    s, t = a.shape, b.shape
    is_complex = "c" in (a.dtype.kind, b.dtype.kind)
    result: Any
    if at:
        full_lengths = [s[k] + t[k] - 1 for k in at]
        lengths = [fast_length(n, not is_complex) for n in full_lengths]
        forward, back = ("fft", "ifft") if is_complex else ("rfft", "irfft")
        spectra = [transformed_along(floats(x), lengths, at, None, forward) for x in (a, b)]
        result = transformed_along(xp.multiply(*spectra), lengths, at, None, back)
        for k, n in zip(at, full_lengths, strict=True):
            result = part(result, k, 0, n)
    else:
        result = floats(a) * floats(b)
    if mode == "full":
        return result
    if mode not in ("same", "valid"):
        raise ValueError("acceptable mode flags are 'valid', 'same', or 'full'")
    for k in range(a.ndim):
        n = s[k] if mode == "same" else s[k] - t[k] + 1 if k in at else result.shape[k]
        result = part(result, k, (result.shape[k] - n) // 2, n)
    return result
