"""scipy.fftpack, the older interface to scipy.fft: its transforms call scipy.fft's, without norms."""

from __future__ import annotations

from typing import Any

from pullback.ir.core.op import resolve
from pullback.ir.shapes.symbolic import extent_of
from pullback.tracer.arrays.arguments import axis_of, xp
from pullback.tracer.arrays.make import as_traced, cast, emit
from pullback.tracer.arrays.replacements import library_twin, twin_of
from pullback.tracer.functions.numpy.fft import floats, resized

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def _scipy_fft(name: str, *args: Any) -> Any:
    return library_twin(resolve(f"scipy.fft.{name}"))(*args)


def _register_transform(name: str) -> None:
    @twin_of(f"scipy.fftpack.{name}")
    def transform(x: Any, n: Any = None, axis: Any = -1, overwrite_x: bool = False) -> Any:
        return _scipy_fft(name, x, n, axis)

    for letter, default in (("2", (-2, -1)), ("n", None)):

        @twin_of(f"scipy.fftpack.{name}{letter}")
        def several(x: Any, shape: Any = None, axes: Any = default, overwrite_x: bool = False, letter: str = letter) -> Any:
            return _scipy_fft(name + letter, x, shape, axes)


def _register_trigonometric(name: str, is_inverse: bool) -> None:
    """Register a trigonometric transform. An inverse is the transform of the inverse type: unlike scipy.fft's, it is not
    scaled."""
    prefix = "i" if is_inverse else ""

    def kind_of(kind: int) -> int:
        return _INVERSE.get(kind, kind) if is_inverse else kind

    @twin_of(f"scipy.fftpack.{prefix}{name}")
    def transform(x: Any, type: Any = 2, n: Any = None, axis: Any = -1, norm: Any = None, overwrite_x: bool = False) -> Any:
        return _scipy_fft(name, x, kind_of(type), n, axis, norm)

    @twin_of(f"scipy.fftpack.{prefix}{name}n")
    def several(x: Any, type: Any = 2, shape: Any = None, axes: Any = None, norm: Any = None, overwrite_x: bool = False) -> Any:
        return _scipy_fft(f"{name}n", x, kind_of(type), shape, axes, norm)


for _name in ("fft", "ifft"):
    _register_transform(_name)
for _name in ("dct", "dst"):
    _register_trigonometric(_name, False)
    _register_trigonometric(_name, True)


def _real(x: Any) -> Any:
    array = floats(as_traced(x))
    if array.dtype.kind == "c":
        raise TypeError("x must be a real sequence")
    return array


@twin_of("scipy.fftpack.rfft")
def rfft(x: Any, n: Any = None, axis: Any = -1, overwrite_x: bool = False) -> Any:
    """Return the real and imaginary parts interleaved, without the imaginary parts that are always 0."""
    a = _real(x)
    at = axis_of(axis, a.ndim)
    count = a.shape[at] if n is None else extent_of(n)
    spectrum = xp.moveaxis(_scipy_fft("rfft", a, count, at), at, -1)
    pairs = xp.stack([spectrum.real, spectrum.imag], axis=-1)
    flat = xp.reshape(pairs, (*spectrum.shape[:-1], 2 * spectrum.shape[-1]))
    return xp.moveaxis(xp.concatenate([flat[..., :1], flat[..., 2 : count + 1]], axis=-1), -1, at)


@twin_of("scipy.fftpack.irfft")
def irfft(x: Any, n: Any = None, axis: Any = -1, overwrite_x: bool = False) -> Any:
    a = _real(x)
    at = axis_of(axis, a.ndim)
    count = a.shape[at] if n is None else extent_of(n)
    if count < 1:
        raise ValueError(f"invalid number of data points ({count}) specified")
    rows: Any = xp.moveaxis(resized(a, count, at), at, -1)
    zero = cast(rows[..., :1] * 0, rows.dtype)
    real = xp.concatenate([rows[..., :1], rows[..., 1::2]], axis=-1)
    imag = xp.concatenate([zero, rows[..., 2::2], *([zero] if count % 2 == 0 else [])], axis=-1)
    return xp.moveaxis(_scipy_fft("irfft", emit("complex", real, imag), count, -1), -1, at)
