"""scipy.signal by Fourier transforms: analytic signals, resampling, and spectra of overlapping segments.

The methods are SciPy's. SciPy's warnings that a segment was shortened or an input is complex are not issued.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from pullback.ir.core.op import resolve
from pullback.ir.shapes.symbolic import extent_of, lifted
from pullback.tracer.arrays.arguments import axis_of, part, positions, xp
from pullback.tracer.arrays.make import as_traced, broadcast_shapes, cast, emit, full
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.functions.numpy.fft import complexes, floats, transformed, transformed_along
from pullback.tracer.functions.scipy.fft import fftfreq, rfftfreq
from pullback.tracer.functions.scipy.signal.filters import detrend as detrended
from pullback.tracer.transforms.region import follow

# analytic signals and resampling


def _weighted(x: Any, axis: int, weights: Any) -> Any:
    """Multiply an array by real weights along an axis."""
    shape = [1] * x.ndim
    shape[axis] = len(weights)
    return x * np.asarray(weights, x.real.dtype).reshape(shape)


def _one_sided(n: int) -> Any:
    """Return the weights 1 for the mean, 2 for positive frequencies, 0 for negative ones, 1 for an unpaired one."""
    weights = np.zeros(n)
    weights[0] = 1.0
    weights[1 : (n + 1) // 2] = 2.0
    if n % 2 == 0:
        weights[n // 2] = 1.0
    return weights


def _real_signal(x: Any) -> TracedArray:
    array = as_traced(x)
    if array.dtype.kind == "c":
        raise ValueError("x must be real.")
    return floats(array)


@twin_of("scipy.signal.hilbert")
def hilbert(x: Any, N: Any = None, axis: Any = -1) -> Any:
    a = _real_signal(x)
    at = axis_of(axis, a.ndim)
    n = a.shape[at] if N is None else extent_of(N)
    if n <= 0:
        raise ValueError("N must be positive.")
    return transformed(_weighted(transformed(a, n, at, None, "fft"), at, _one_sided(n)), None, at, None, "ifft")


@twin_of("scipy.signal.hilbert2")
def hilbert2(x: Any, N: Any = None, axes: Any = (-2, -1)) -> Any:
    a = _real_signal(xp.atleast_2d(as_traced(x)))
    if len(axes) != 2:
        raise ValueError("axes must be a tuple of length 2")
    at = [axis_of(k, a.ndim) for k in axes]
    if at[0] == at[1]:
        raise ValueError("axes must contain 2 distinct axes")
    counts = [a.shape[k] for k in at] if N is None else [operator.index(n) for n in (N if np.ndim(N) else (N, N))]
    if len(counts) != 2 or min(counts) <= 0:
        pair = "When given as a tuple, N must hold exactly two positive integers"
        raise ValueError(pair if np.ndim(N) else "N must be positive.")
    spectrum: Any = transformed_along(a, counts, at, None, "fft")
    for n, k in zip(counts, at, strict=True):
        weights = _one_sided(n)
        weights[(n + 1) // 2 :] = 0.0
        spectrum = _weighted(spectrum, k, weights)
    return transformed_along(spectrum, counts, at, None, "ifft")


@twin_of("scipy.signal.resample")
def resample(x: Any, num: Any, t: Any = None, axis: Any = 0, window: Any = None, domain: str = "time") -> Any:
    if domain not in ("time", "freq"):
        raise ValueError(f"Parameter {domain=} not in ('time', 'freq')!")
    a: Any = floats(x)
    at, count = axis_of(axis, a.ndim), operator.index(num)
    a = xp.moveaxis(a, at, -1)
    n = a.shape[-1]
    shared = min(count, n)
    weights: Any = None
    if window is not None:
        if callable(window):
            weights = follow(window)(np.fft.fftfreq(n))
        elif hasattr(window, "shape"):
            if window.shape != (n,):
                raise ValueError(f"{window.shape=} != ({n},), i.e., window length is not equal to number of frequency bins!")
            weights = window
        else:
            weights = np.fft.fftshift(resolve("scipy.signal.get_window")(window, n))
    if domain == "time" and a.dtype.kind != "c":
        spectrum: Any = transformed(a, None, -1, None, "rfft")
        if weights is not None:
            folded = xp.concatenate([weights[:1], 0.5 * (weights[1:] + xp.flip(weights[1:], 0))])
            spectrum = spectrum * cast(as_traced(folded[: spectrum.shape[-1]]), spectrum.real.dtype)
        spectrum = spectrum[..., : shared // 2 + 1]
        if shared % 2 == 0 and count != n:
            edge = np.ones(spectrum.shape[-1])
            edge[shared // 2] = 2.0 if count < n else 0.5
            spectrum = _weighted(spectrum, spectrum.ndim - 1, edge)
        result: Any = transformed(spectrum, count, -1, None, "irfft")
    else:
        spectrum = transformed(a, None, -1, None, "fft") if domain == "time" else complexes(a)
        if weights is not None:
            spectrum = spectrum * cast(as_traced(weights), spectrum.real.dtype)
        half = shared // 2 + 1
        low, high = spectrum[..., :half], spectrum[..., n - (shared - half) :]
        if shared % 2 == 0 and count < n:
            folded_edge = low[..., -1:] + spectrum[..., n - shared // 2 : n - shared // 2 + 1]
            low = xp.concatenate([low[..., :-1], folded_edge], axis=-1)
        elif shared % 2 == 0 and count > n:
            middle = 0.5 * low[..., -1:]
            low, high = xp.concatenate([low[..., :-1], middle], axis=-1), xp.concatenate([middle, high], axis=-1)
        gap = full((*low.shape[:-1], count - low.shape[-1] - high.shape[-1]), 0, low.dtype)
        result = transformed(xp.concatenate([low, gap, high], axis=-1), count, -1, None, "ifft")
    result = xp.moveaxis(result * result.real.dtype.type(count / n), -1, at)
    return result if t is None else (result, t[0] + (t[1] - t[0]) * (n / count) * lifted(np.arange, count))


# segments


def _window(window: Any, nperseg: Any, length: int) -> tuple[Any, int]:
    """Return the window and its length. Raises ValueError as SciPy does."""
    if isinstance(window, str | tuple):
        count = 256 if nperseg is None else operator.index(nperseg)
        if count < 1:
            raise ValueError("nperseg must be a positive integer")
        count = min(count, length)
        return resolve("scipy.signal.get_window")(window, count), count
    values = window if isinstance(window, TracedArray) else np.asarray(window)
    if values.ndim != 1:
        raise ValueError("window must be 1-D")
    if length < values.shape[0]:
        raise ValueError("window is longer than input signal")
    if nperseg is not None and nperseg != values.shape[0]:
        raise ValueError("value specified for nperseg is different from length of window")
    return values, values.shape[0]


def _overlap(noverlap: Any, nperseg: int) -> int:
    overlap = nperseg // 2 if noverlap is None else operator.index(noverlap)
    if overlap >= nperseg:
        raise ValueError("noverlap must be less than nperseg.")
    return overlap


def _length(nfft: Any, nperseg: int) -> int:
    length = nperseg if nfft is None else operator.index(nfft)
    if length < nperseg:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    return length


def _extended(x: Any, n: int, boundary: Any) -> Any:
    """Extend a signal by n samples at both ends of the last axis."""
    if boundary not in ("even", "odd", "constant", "zeros", None):
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: ['even', 'odd', 'constant', 'zeros', None]")
    if boundary is None or n < 1:
        return x
    widths = [(0, 0)] * (x.ndim - 1) + [(n, n)]
    if boundary in ("zeros", "constant"):
        return xp.pad(x, widths, "constant" if boundary == "zeros" else "edge")
    if n > x.shape[-1] - 1:
        raise ValueError(
            f"The extension length n ({n}) is too big. It must not exceed x.shape[axis]-1, which is {x.shape[-1] - 1}."
        )
    padded = xp.pad(x, widths, "reflect")
    if boundary == "even":
        return padded
    first, last = 2 * x[..., :1] - padded[..., :n], 2 * x[..., -1:] - padded[..., n + x.shape[-1] :]
    return xp.concatenate([first, x, last], axis=-1)


def _segments(x: Any, nperseg: int, step: int) -> Any:
    """Return the overlapping segments of the last axis, one per row."""
    space = ((x.shape[-1] - nperseg) // step + 1, nperseg)
    return xp.take(x, positions(space, 0) * step + positions(space, 1), axis=-1)


def _overlap_added(rows: Any, step: int) -> Any:
    """Return the sum of the rows of the last two axes, each ``step`` positions after the previous one."""
    count, width = rows.shape[-2:]
    space = (count, width)
    index = positions(space, 0) * step + positions(space, 1)
    values = xp.moveaxis(rows, (-2, -1), (0, 1))
    base = full((width + (count - 1) * step, *values.shape[2:]), 0, values.dtype)
    return xp.moveaxis(emit("scatter_add", base, index, values, axes=(0,)), 0, -1)


def _without_trend(detrend: Any, axis: int) -> Any:
    if callable(detrend):
        user = follow(detrend)
        return user if axis == -1 else lambda d: xp.moveaxis(user(xp.moveaxis(d, -1, axis)), axis, -1)
    return (lambda d: detrended(d, -1, detrend)) if detrend else lambda d: d


def _spectra(
    x: Any, y: Any, fs: Any, window: Any, nperseg: Any, noverlap: Any, nfft: Any, detrend: Any, onesided: bool, scaling: str,
    axis: Any, power: bool, boundary: Any = None, padded: bool = False,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Return frequencies, times, and the transforms of the segments of x, or, with ``power``, their products with those of y.

    In the transforms the frequency replaces the axis, and the segment is the last axis.
    """
    a: Any = floats(x)
    b: Any = a if y is None else floats(y)
    at = axis_of(axis, a.ndim) - a.ndim
    kind = np.result_type(a.dtype, b.dtype, np.complex64)
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling!r}")
    a, b = (xp.moveaxis(v, at, -1) if v.ndim > 1 else v for v in (a, b))
    try:
        broadcast_shapes(a.shape[:-1], b.shape[:-1])
    except ValueError:
        raise ValueError("x and y cannot be broadcast together.") from None
    n = max(a.shape[-1], b.shape[-1])
    a, b = (xp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, n - v.shape[-1])]) if v.shape[-1] < n else v for v in (a, b))
    win, count = _window(window, nperseg, n)
    length, overlap = _length(nfft, count), _overlap(noverlap, count)
    step = count - overlap
    real = np.empty(0, kind).real.dtype
    taper: Any = cast(as_traced(win), real)
    sides = onesided and a.dtype.kind != "c" and b.dtype.kind != "c"
    scale: Any = 1.0 / (fs * xp.sum(win * win)) if scaling == "density" else 1.0 / xp.sum(win) ** 2
    remove = _without_trend(detrend, axis)

    def transforms(v: Any) -> Any:
        v = _extended(v, count // 2, boundary)
        if padded:
            padding = (-(v.shape[-1] - count) % step) % count
            v = xp.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, padding)])
        rows = taper * remove(_segments(v, count, step))
        return v.shape[-1], transformed(rows, length, -1, None, "rfft" if sides else "fft")

    extended_length, spectra = transforms(a)
    if power and y is None:
        spectra = spectra.real * spectra.real + spectra.imag * spectra.imag
    elif power:
        spectra = xp.conjugate(spectra) * transforms(b)[1]
    spectra = spectra * cast(as_traced(scale if power else xp.sqrt(scale)), real)
    if power and sides:
        doubled = np.full(spectra.shape[-1], 2.0)
        doubled[0] = 1.0
        if length % 2 == 0:
            doubled[-1] = 1.0
        spectra = _weighted(spectra, spectra.ndim - 1, doubled)
    frequencies = (rfftfreq if sides else fftfreq)(length, 1 / fs)
    times = as_traced(lifted(np.arange, count / 2, extended_length - count / 2 + 1, step)) / fs
    times = times if boundary is None else times - (count / 2) / fs
    spectra = cast(spectra, kind if spectra.dtype.kind == "c" else real)
    return frequencies, times, xp.moveaxis(spectra, -1, at - 1)


def _empty_results(shape: tuple[int, ...], count: int) -> Any:
    return tuple(full(shape, 0, np.float64) for _ in range(count))


@twin_of("scipy.signal.csd")
def csd(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None, nfft: Any = None,
    detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: Any = -1, average: str = "mean",
) -> Any:  # fmt: skip
    is_same = y is x
    a, b = as_traced(x), as_traced(y)
    if not a.size or not b.size:
        outer = broadcast_shapes(*(v.shape[:-1] for v in (xp.moveaxis(v, axis, -1) for v in (a, b))))
        return _empty_results(a.shape if is_same else (*outer, min(a.shape[axis], b.shape[axis])), 2)
    arguments = (fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis)
    frequencies, _, spectra = _spectra(a, None if is_same else b, *arguments, power=True)
    if average not in ("mean", "median"):
        raise ValueError(f"Parameter {average=} must be 'median' or 'mean'!")
    count = spectra.shape[-1]
    if average == "mean" or count == 1:
        return frequencies, xp.mean(spectra, axis=-1)
    terms = 2 * lifted(np.arange, 1.0, (count - 1) // 2 + 1)
    bias = 1 + np.sum(1.0 / (terms + 1) - 1.0 / terms)
    parts = [spectra] if spectra.dtype.kind == "f" else [spectra.real, spectra.imag]
    parts = [xp.median(p, axis=-1) / p.dtype.type(bias) for p in parts]
    return frequencies, parts[0] if len(parts) == 1 else emit("complex", *parts)


@twin_of("scipy.signal.welch")
def welch(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None, nfft: Any = None,
    detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: Any = -1, average: str = "mean",
) -> Any:  # fmt: skip
    a = as_traced(x)
    return csd(a, a, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


@twin_of("scipy.signal.periodogram")
def periodogram(
    x: Any, fs: Any = 1.0, window: Any = "boxcar", nfft: Any = None, detrend: Any = "constant", return_onesided: bool = True,
    scaling: str = "density", axis: Any = -1,
) -> Any:  # fmt: skip
    a = as_traced(x)
    if not a.size:
        return _empty_results(a.shape, 2)
    at = axis_of(axis, a.ndim)
    count = a.shape[at]
    if nfft is not None and nfft < count:
        a, count, nfft = part(a, at, 0, operator.index(nfft)), operator.index(nfft), None
    if hasattr(window, "size") and window.size != count:
        raise ValueError("the size of the window must be the same size of the input on the specified axis")
    return welch(a, fs, "boxcar" if window is None else window, count, 0, nfft, detrend, return_onesided, scaling, axis)


@twin_of("scipy.signal.coherence")
def coherence(
    x: Any, y: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None, nfft: Any = None,
    detrend: Any = "constant", axis: Any = -1,
) -> Any:  # fmt: skip
    options = {"fs": fs, "window": window, "nperseg": nperseg, "noverlap": noverlap, "nfft": nfft, "detrend": detrend}
    options["axis"] = axis
    frequencies, first = welch(x, **options)
    cross = csd(x, y, **options)[1]
    return frequencies, xp.abs(cross) ** 2 / first / welch(y, **options)[1]


@twin_of("scipy.signal.spectrogram")
def spectrogram(
    x: Any, fs: Any = 1.0, window: Any = ("tukey", 0.25), nperseg: Any = None, noverlap: Any = None, nfft: Any = None,
    detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density", axis: Any = -1, mode: str = "psd",
) -> Any:  # fmt: skip
    modes = ["psd", "complex", "magnitude", "angle", "phase"]
    if mode not in modes:
        raise ValueError(f"unknown value for mode {mode}, must be one of {modes}")
    a = as_traced(x)
    if not a.size:
        return _empty_results(a.shape, 3)
    win, count = _window(window, nperseg, a.shape[axis])
    overlap = count // 8 if noverlap is None else noverlap
    options = (fs, win, count, overlap, nfft, detrend, return_onesided, scaling, axis)
    frequencies, times, spectra = _spectra(a, None, *options, power=mode == "psd")
    if mode == "magnitude":
        spectra = xp.abs(spectra)
    elif mode in ("angle", "phase"):
        spectra = xp.angle(spectra)
        spectra = xp.unwrap(spectra, axis=axis - 1 if axis < 0 else axis) if mode == "phase" else spectra
    return frequencies, times, spectra


@twin_of("scipy.signal.stft")
def stft(
    x: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = 256, noverlap: Any = None, nfft: Any = None,
    detrend: Any = False, return_onesided: bool = True, boundary: Any = "zeros", padded: bool = True, axis: Any = -1,
    scaling: str = "spectrum",
) -> Any:  # fmt: skip
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter {scaling=} not in ['spectrum', 'psd']!")
    a = as_traced(x)
    if not a.size:
        return _empty_results(a.shape, 3)
    options = (fs, window, nperseg, noverlap, nfft, detrend, return_onesided, "density" if scaling == "psd" else scaling, axis)
    return _spectra(a, None, *options, power=False, boundary=boundary, padded=padded)


@twin_of("scipy.signal.istft")
def istft(
    Zxx: Any, fs: Any = 1.0, window: Any = "hann", nperseg: Any = None, noverlap: Any = None, nfft: Any = None,
    input_onesided: bool = True, boundary: Any = True, time_axis: Any = -1, freq_axis: Any = -2, scaling: str = "spectrum",
) -> Any:  # fmt: skip
    z: Any = complexes(floats(Zxx))
    if z.ndim < 2:
        raise ValueError("Input stft must be at least 2d!")
    time, frequency = axis_of(time_axis, z.ndim), axis_of(freq_axis, z.ndim)
    if time == frequency:
        raise ValueError("Must specify differing time and frequency axes!")
    if scaling not in ("spectrum", "psd"):
        raise ValueError(f"Parameter {scaling=} not in ['spectrum', 'psd']!")
    z = xp.moveaxis(z, (time, frequency), (-2, -1))
    usual = 2 * (z.shape[-1] - 1) if input_onesided else z.shape[-1]
    count = usual if nperseg is None else operator.index(nperseg)
    if count < 1:
        raise ValueError("nperseg must be a positive integer")
    if nfft is None:
        length = count if input_onesided and count == usual + 1 else usual
    else:
        length = _length(nfft, count)
    step = count - _overlap(noverlap, count)
    if isinstance(window, str | tuple):
        win: Any = resolve("scipy.signal.get_window")(window, count)
    else:
        win = window if isinstance(window, TracedArray) else np.asarray(window)
        if win.ndim != 1:
            raise ValueError("window must be 1-D")
        if win.shape[0] != count:
            raise ValueError(f"window must have length of {count}")
    rows = transformed(z, length, -1, None, "irfft" if input_onesided else "ifft")[..., :count]
    real = rows.real.dtype
    taper: Any = cast(as_traced(win), real)
    total = xp.sum(win) if scaling == "spectrum" else xp.sqrt(fs * xp.sum(win**2))
    signal = _overlap_added(rows * (taper * cast(as_traced(total), real)), step)
    weight = _overlap_added(xp.broadcast_to(taper * taper, (rows.shape[-2], count)), step)
    if boundary:
        edge = count // 2
        signal, weight = signal[..., edge:-edge], weight[edge:-edge]
    signal = signal / xp.where(weight > 1e-10, weight, 1.0)
    if signal.ndim > 1 and time != z.ndim - 1:
        signal = xp.moveaxis(signal, -1, time - (frequency < time))
    return as_traced(lifted(np.arange, signal.shape[0], dtype=np.float64)) / fs, signal
