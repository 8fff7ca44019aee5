"""scipy.fft: NumPy's transforms under SciPy's signatures, and the cosine and sine transforms, which are composed of them.

A cosine or sine transform is the Fourier transform of a sequence extended by symmetry (Makhoul, A fast cosine transform in one
and two dimensions, 1980; the definitions are in the documentation of ``scipy.fft.dct`` and ``dst``).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir.shapes.symbolic import extent_of
from pullback.tracer.arrays.arguments import axis_of, positions, xp
from pullback.tracer.arrays.make import as_traced, cast, emit, full
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import is_computed
from pullback.tracer.functions.numpy.creation import arange
from pullback.tracer.functions.numpy.fft import (
    SWAPPED,
    complexes,
    fftshift,
    floats,
    ifftshift,
    resized,
    scaled,
    transformed,
    transformed_along,
)


def _norm(norm: Any, inverse: bool = False) -> Any:
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'Invalid norm value {norm!r}, should be "backward", "ortho" or "forward"')
    return SWAPPED[norm] if inverse else norm


def _refuse_plan(plan: Any) -> None:
    if plan is not None:
        raise NotImplementedError("Passing a precomputed plan is not yet supported by scipy.fft functions")


def _real(x: Any) -> TracedArray:
    """Return an array of real numbers. Raises TypeError as SciPy does for complex ones."""
    array = as_traced(x)
    if array.dtype.kind == "c":
        raise TypeError("x must be a real sequence")
    return array


def _length(n: Any, default: int) -> int:
    length = default if n is None else extent_of(n)
    if length < 1:
        raise ValueError(f"invalid number of data points ({length}) specified")
    return length


def _register_one_axis(name: str) -> None:
    @twin_of(f"scipy.fft.{name}")
    def transform(
        x: Any,
        n: Any = None,
        axis: Any = -1,
        norm: Any = None,
        overwrite_x: bool = False,
        workers: Any = None,
        *,
        plan: Any = None,
    ) -> TracedArray:
        _refuse_plan(plan)
        a = floats(_real(x) if name in ("rfft", "ihfft") else x)
        at = axis_of(axis, a.ndim)
        count = _length(n, 2 * (a.shape[at] - 1) if name in ("irfft", "hfft") else a.shape[at])
        if name == "hfft":
            return transformed(xp.conjugate(a), count, at, _norm(norm, True), "irfft")
        if name == "ihfft":
            return xp.conjugate(transformed(a, count, at, _norm(norm, True), "rfft"))
        return transformed(a, count, at, _norm(norm), name)


def _axes(a: TracedArray, s: Any, axes: Any) -> tuple[Any, list[int]]:
    """Return the lengths (or None) and the axes of a transform along several axes. Raises ValueError as SciPy does."""
    if s is not None:
        s = [extent_of(n) for n in (s if np.ndim(s) else [s])]
    if axes is not None:
        axes = [operator.index(k) for k in (axes if np.ndim(axes) else [axes])]
        at = [axis_of(k, a.ndim) for k in axes]
        if len(set(at)) != len(at):
            raise ValueError("all axes must be unique")
        if s is not None and len(s) != len(at):
            raise ValueError("when given, axes and shape arguments have to be of the same length")
    elif s is not None:
        if len(s) > a.ndim:
            raise ValueError("shape requires more axes than are present")
        at = list(range(a.ndim - len(s), a.ndim))
    else:
        at = list(range(a.ndim))
    return s, at


def _register_many_axes(name: str, default: Any) -> None:
    kind = name.rstrip("2n")

    @twin_of(f"scipy.fft.{name}")
    def transform(
        x: Any, s: Any = None, axes: Any = default, norm: Any = None, overwrite_x: bool = False, workers: Any = None, *,
        plan: Any = None,
    ) -> TracedArray:  # fmt: skip
        _refuse_plan(plan)
        a = floats(_real(x) if kind in ("rfft", "ihfft") else x)
        lengths, at = _axes(a, s, axes)
        if not at:
            if kind in ("fft", "ifft"):
                return a
            raise ValueError("at least 1 axis must be transformed")
        if any(n < 1 and n != -1 for n in (lengths or [])):
            raise ValueError(f"invalid number of data points ({lengths}) specified")
        if kind == "hfft":
            return transformed_along(xp.conjugate(a), lengths, at, _norm(norm, True), "irfft")
        if kind == "ihfft":
            return xp.conjugate(transformed_along(a, lengths, at, _norm(norm, True), "rfft"))
        return transformed_along(a, lengths, at, _norm(norm), kind)


for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    _register_one_axis(_name)
    _register_many_axes(f"{_name}2", (-2, -1))
    _register_many_axes(f"{_name}n", None)
twin_of("scipy.fft.fftshift")(fftshift)
twin_of("scipy.fft.ifftshift")(ifftshift)


@twin_of("numpy.fft.fftfreq", "scipy.fft.fftfreq")
def fftfreq(n: Any, d: Any = 1.0, device: Any = None, **kwargs: Any) -> Any:
    if is_computed(n):
        k = arange(n)
        return as_traced(xp.where(k < (n + 1) // 2, k, k - n)) * (1.0 / (n * d))
    count = operator.index(n)
    return as_traced(np.fft.fftfreq(count) * count) / (count * as_traced(d))


@twin_of("numpy.fft.rfftfreq", "scipy.fft.rfftfreq")
def rfftfreq(n: Any, d: Any = 1.0, device: Any = None, **kwargs: Any) -> Any:
    if is_computed(n):
        return arange(n // 2 + 1) * (1.0 / (n * d))
    count = operator.index(n)
    return as_traced(np.fft.rfftfreq(count) * count) / (count * as_traced(d))


# unscaled cosine and sine transforms along the last axis


def _phases(shape: tuple[int, ...], dtype: Any, step: float, start: float = 0.0) -> TracedArray:
    """Return the phase factors exp(-i (step k + start)) at position k of the last axis."""
    angle = positions(shape, len(shape) - 1, np.float64) * step + start
    return emit("complex", *(cast(p, dtype) for p in (xp.cos(angle), -xp.sin(angle))))


def _cosine1(x: Any) -> Any:
    n = x.shape[-1]
    return transformed(xp.concatenate([x, xp.flip(x[..., 1 : n - 1], -1)], axis=-1), None, -1, None, "rfft").real


def _cosine2(x: Any) -> Any:
    n = x.shape[-1]
    spectrum = transformed(xp.concatenate([x, xp.flip(x, -1)], axis=-1), None, -1, None, "rfft")[..., :n]
    return (spectrum * _phases(spectrum.shape, x.dtype, math.pi / (2 * n))).real


def _cosine3(x: Any) -> Any:
    n = x.shape[-1]
    phased = complexes(x) * xp.conjugate(_phases(x.shape, x.dtype, math.pi / (2 * n)))
    return transformed(resized(phased, n + 1, x.ndim - 1), 2 * n, -1, "forward", "irfft")[..., :n]


def _cosine4(x: Any) -> Any:
    n = x.shape[-1]
    phased = complexes(x) * _phases(x.shape, x.dtype, math.pi / (2 * n))
    spectrum = transformed(phased, 2 * n, -1, None, "fft")[..., :n]
    return 2 * (spectrum * _phases(x.shape, x.dtype, math.pi / (2 * n), math.pi / (4 * n))).real


def _alternating(x: Any) -> Any:
    """Negate every other value along the last axis."""
    return xp.where(positions(x.shape, x.ndim - 1) % 2 == 0, x, -x)


def _sine1(x: Any) -> Any:
    zero = full((*x.shape[:-1], 1), 0, x.dtype)
    odd = xp.concatenate([zero, x, zero, -xp.flip(x, -1)], axis=-1)
    return -transformed(odd, None, -1, None, "rfft").imag[..., 1 : x.shape[-1] + 1]


UNSCALED: dict[tuple[str, int], Callable[[Any], Any]] = {
    ("c", 1): _cosine1,
    ("c", 2): _cosine2,
    ("c", 3): _cosine3,
    ("c", 4): _cosine4,
    ("s", 1): _sine1,
    ("s", 2): lambda x: xp.flip(_cosine2(_alternating(x)), -1),
    ("s", 3): lambda x: _alternating(_cosine3(xp.flip(x, -1))),
    ("s", 4): lambda x: _alternating(_cosine4(xp.flip(x, -1))),
}
"""The unscaled transform along the last axis, by family ("c": cosine, "s": sine) and type."""
INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def _scale_edges(x: Any, edge_positions: list[int], factor: float) -> Any:
    """Multiply the values at some positions of the last axis by a factor."""
    at = positions(x.shape, x.ndim - 1)
    chosen = at == edge_positions[0] % x.shape[-1]
    for position in edge_positions[1:]:
        chosen = chosen | (at == position % x.shape[-1])
    return xp.where(chosen, x * x.dtype.type(factor), x)


def _trigonometric(a: Any, family: str, kind: int, n: Any, axis: int, norm: Any, inverse: bool, orthogonalize: Any) -> Any:
    """Compute a cosine ("c") or sine ("s") transform along one axis."""
    x = floats(a)
    if x.dtype.kind == "c":
        parts = (_trigonometric(p, family, kind, n, axis, norm, inverse, orthogonalize) for p in (x.real, x.imag))
        return emit("complex", *parts)
    count = _length(n, x.shape[axis])
    if (family, kind) == ("c", 1) and count < 2:
        raise RuntimeError("zero-length FFT requested")
    x = xp.moveaxis(resized(x, count, axis), axis, -1)
    kind, norm = (INVERSE[kind], _norm(norm, True)) if inverse else (kind, _norm(norm))
    is_orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    ends = {("c", 1): [0, -1], ("c", 2): [0], ("c", 3): [0], ("s", 2): [-1], ("s", 3): [-1]}.get((family, kind))
    before, after = kind in (1, 3), kind in (1, 2)
    if is_orthogonal and ends and before:
        x = _scale_edges(x, ends, math.sqrt(2.0))
    result = UNSCALED[family, kind](x)
    if is_orthogonal and ends and after:
        result = _scale_edges(result, ends, math.sqrt(0.5))
    period = 2 * (count + ({"c": -1, "s": 1}[family] if kind == 1 else 0))
    factor = {None: 1.0, "backward": 1.0, "ortho": math.sqrt(1.0 / period), "forward": 1.0 / period}[norm]
    return xp.moveaxis(cast(scaled(result, factor), x.dtype), -1, axis)


def _kind(kind: Any, family: str) -> int:
    result = operator.index(kind)
    if result not in INVERSE:
        raise ValueError(f"invalid {'DCT' if family == 'c' else 'DST'} type")
    return result


def _register_trigonometric(name: str, family: str, inverse: bool) -> None:
    @twin_of(f"scipy.fft.{name}")
    def transform(
        x: Any, type: Any = 2, n: Any = None, axis: Any = -1, norm: Any = None, overwrite_x: bool = False, workers: Any = None,
        orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        a = as_traced(x)
        return _trigonometric(a, family, _kind(type, family), n, axis_of(axis, a.ndim), norm, inverse, orthogonalize)


def _register_trigonometric_n(name: str, family: str, inverse: bool) -> None:
    @twin_of(f"scipy.fft.{name}")
    def transform(
        x: Any, type: Any = 2, s: Any = None, axes: Any = None, norm: Any = None, overwrite_x: bool = False,
        workers: Any = None, *, orthogonalize: Any = None,
    ) -> Any:  # fmt: skip
        a: Any = as_traced(x)
        kind = _kind(type, family)
        lengths, at = _axes(a, s, axes)
        for n, k in zip(lengths or [None] * len(at), at, strict=True):
            n = None if n == -1 else n
            a = _trigonometric(a, family, kind, n, k, norm, inverse, orthogonalize)
        return a


for _name, _family in (("dct", "c"), ("dst", "s")):
    _register_trigonometric(_name, _family, False)
    _register_trigonometric(f"i{_name}", _family, True)
    _register_trigonometric_n(f"{_name}n", _family, False)
    _register_trigonometric_n(f"i{_name}n", _family, True)
