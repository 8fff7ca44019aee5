"""Filters and interpolation of scipy.ndimage, composed of array functions; computed in float64 and cast to the input's dtype."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import resolve
from pullback.tracer.arrays.arguments import axis_list, axis_of, part, reshaped, xp
from pullback.tracer.arrays.make import as_traced, broadcast_together, cast, static_ints
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError

PADS = {
    "reflect": "symmetric", "grid-mirror": "symmetric", "constant": "constant", "grid-constant": "constant", "nearest": "edge",
    "mirror": "reflect", "wrap": "wrap", "grid-wrap": "wrap",
}  # fmt: skip


def _input(name: str, input: Any, output: Any) -> tuple[TracedArray, np.dtype[Any]]:
    x = as_traced(input)
    if x.dtype.kind == "c" or isinstance(output, np.ndarray | TracedArray):
        raise TraceError(f"scipy.ndimage.{name} of traced complex numbers, or into an array, is not supported; use the result")
    return cast(x, np.float64), x.dtype if output is None else np.dtype(output)


def _pad(x: Any, margins: Sequence[tuple[int, int]], mode: str, cval: Any) -> Any:
    if mode not in PADS:
        raise RuntimeError("boundary mode not supported")
    options = {"constant_values": cval} if PADS[mode] == "constant" else {}
    return xp.pad(x, margins, mode=PADS[mode], **options)


def _per_axis(value: Any, rank: int) -> list[Any]:
    values = list(value) if isinstance(value, list | tuple | np.ndarray) else [value] * rank
    if len(values) != rank:
        raise RuntimeError("sequence argument must have length equal to input rank")
    return values


def _correlated(x: Any, weights: Any, mode: str, cval: Any, origins: Sequence[Any]) -> Any:
    """Return the weighted sum of shifted arrays; a positive origin moves the window to the left."""
    margins = []
    for n, origin in zip(weights.shape, origins):
        before = n // 2 + operator.index(origin)
        if not 0 <= before < n:
            raise ValueError("invalid origin")
        margins.append((before, n - 1 - before))
    padded = _pad(x, margins, mode, cval)
    total: Any = None
    for offset in itertools.product(*map(range, weights.shape)):
        shifted = padded
        for axis, start in enumerate(offset):
            shifted = part(shifted, axis, start, x.shape[axis])
        term = shifted * weights[offset]
        total = term if total is None else total + term
    return 0.0 * x if total is None else total


def _filter(name: str, input: Any, weights: Any, output: Any, mode: str, cval: Any, origin: Any, is_convolution: bool) -> Any:
    x, dtype = _input(name, input, output)
    w: Any = cast(as_traced(weights), np.float64)
    if w.ndim != x.ndim:
        raise RuntimeError("filter weights array has incorrect shape.")
    origins = _per_axis(origin, x.ndim)
    if is_convolution:
        w = xp.flip(w)
        origins = [-o - (n % 2 == 0) for o, n in zip(origins, w.shape)]
    return cast(_correlated(x, w, mode, cval, origins), dtype)


@twin_of("scipy.ndimage.correlate")
def correlate(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: Any = 0) -> Any:
    return _filter("correlate", input, weights, output, mode, cval, origin, False)


@twin_of("scipy.ndimage.convolve")
def convolve(input: Any, weights: Any, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: Any = 0) -> Any:
    return _filter("convolve", input, weights, output, mode, cval, origin, True)


def _on_axis(weights: Any, axis: int, rank: int) -> Any:
    w = as_traced(weights)
    if w.ndim != 1:
        raise RuntimeError("no filter weights given")
    return reshaped(w, [w.shape[0] if k == axis else 1 for k in range(rank)])


@twin_of("scipy.ndimage.correlate1d")
def correlate1d(
    input: Any, weights: Any, axis: Any = -1, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: Any = 0
) -> Any:
    rank = as_traced(input).ndim
    at = axis_of(axis, rank)
    return correlate(input, _on_axis(weights, at, rank), output, mode, cval, [origin if k == at else 0 for k in range(rank)])


@twin_of("scipy.ndimage.convolve1d")
def convolve1d(
    input: Any, weights: Any, axis: Any = -1, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: Any = 0
) -> Any:
    n = as_traced(weights).shape[0]
    flipped = xp.flip(as_traced(weights))
    return correlate1d(input, flipped, axis, output, mode, cval, -origin - (n % 2 == 0))


def _along_axes(function: Any, input: Any, axes: Any, mode: Any, *values: Any) -> Any:
    """Apply a filter along one axis after another; ``values`` and the mode may differ by axis."""
    rank = as_traced(input).ndim
    positions = range(rank) if axes is None else axis_list(axes, rank)
    result = input
    for axis, axis_mode, *axis_values in zip(positions, *(_per_axis(v, len(positions)) for v in (mode, *values))):
        result = function(result, axis, axis_mode, *axis_values)
    return result


@twin_of("scipy.ndimage.gaussian_filter1d")
def gaussian_filter1d(
    input: Any, sigma: Any, axis: Any = -1, order: int = 0, output: Any = None, mode: str = "reflect", cval: Any = 0.0,
    truncate: float = 4.0, *, radius: Any = None,
) -> Any:  # fmt: skip
    if isinstance(sigma, TracedArray):
        raise TraceError("scipy.ndimage.gaussian_filter1d with a traced sigma has a size that depends on it; use a constant")
    reach = int(truncate * float(sigma) + 0.5) if radius is None else operator.index(radius)
    kernel = resolve("scipy.ndimage._filters._gaussian_kernel1d")(sigma, operator.index(order), reach)[::-1]
    return correlate1d(input, kernel, axis, output, mode, cval)


@twin_of("scipy.ndimage.gaussian_filter")
def gaussian_filter(
    input: Any, sigma: Any, order: Any = 0, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, truncate: float = 4.0, *,
    radius: Any = None, axes: Any = None,
) -> Any:  # fmt: skip
    def once(x: Any, axis: int, how: str, s: Any, k: Any, reach: Any) -> Any:
        return gaussian_filter1d(x, s, axis, k, output, how, cval, truncate, radius=reach) if s > 1e-15 else x

    return _along_axes(once, input, axes, mode, sigma, order, radius)


@twin_of("scipy.ndimage.uniform_filter1d")
def uniform_filter1d(
    input: Any, size: int, axis: Any = -1, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: Any = 0
) -> Any:
    size = operator.index(size)
    if size < 1:
        raise RuntimeError("incorrect filter size")
    return correlate1d(input, np.full(size, 1.0 / size), axis, output, mode, cval, origin)


@twin_of("scipy.ndimage.uniform_filter")
def uniform_filter(
    input: Any, size: Any = 3, output: Any = None, mode: Any = "reflect", cval: Any = 0.0, origin: Any = 0, *, axes: Any = None
) -> Any:
    def once(x: Any, axis: int, how: str, n: Any, shift: Any) -> Any:
        return uniform_filter1d(x, n, axis, output, how, cval, shift) if n > 1 else x

    return _along_axes(once, input, axes, mode, size, origin)


def _register_edge_filter(name: str, smooth: Sequence[float]) -> None:
    def evaluate(input: Any, axis: Any = -1, output: Any = None, mode: Any = "reflect", cval: Any = 0.0) -> Any:
        rank = as_traced(input).ndim
        at, modes = axis_of(axis, rank), _per_axis(mode, rank)
        result = correlate1d(input, np.array([-1.0, 0.0, 1.0]), at, output, modes[at], cval)
        for k in range(rank):
            if k != at:
                result = correlate1d(result, np.array(smooth), k, output, modes[k], cval)
        return result

    twin_of(f"scipy.ndimage.{name}")(evaluate)


_register_edge_filter("sobel", [1.0, 2.0, 1.0])
_register_edge_filter("prewitt", [1.0, 1.0, 1.0])


# interpolation


def _inside(coordinate: Any, n: int, mode: str) -> Any:
    """Return a coordinate moved into the array, for modes that do so before the neighbours are determined."""
    if mode == "nearest":
        return xp.clip(coordinate, 0.0, n - 1.0)
    if mode == "wrap" and n > 1:
        is_outside = (coordinate < 0) | (coordinate > n - 1)
        return xp.where(is_outside, coordinate % (n - 1.0), coordinate)
    return coordinate


def _neighbour(k: Any, n: int, mode: str) -> Any:
    """Return the index of a neighbour, moved into the array."""
    match mode:
        case "mirror":
            period = max(2 * (n - 1), 1)
            return xp.minimum(k % period, period - k % period) if n > 1 else 0 * k
        case "reflect" | "grid-mirror":
            return xp.minimum(k % (2 * n), 2 * n - 1 - k % (2 * n))
        case "grid-wrap":
            return k % n
    return xp.clip(k, 0, n - 1)


@twin_of("scipy.ndimage.map_coordinates")
def map_coordinates(
    input: Any, coordinates: Any, output: Any = None, order: int = 3, mode: str = "constant", cval: Any = 0.0,
    prefilter: bool = True,
) -> Any:  # fmt: skip
    """Interpolate with order 0 or 1. The derivative by a coordinate is that within the grid cell of the point."""
    if order not in (0, 1):
        raise TraceError(f"scipy.ndimage.map_coordinates of traced arrays with order={order} is not supported; use order=1")
    if mode not in PADS:
        raise RuntimeError("boundary mode not supported")
    x, dtype = _input("map_coordinates", input, output)
    points: Any = cast(as_traced(coordinates), np.float64)
    if points.shape[0] != x.ndim:
        raise RuntimeError("invalid shape for coordinate array")
    axes = []
    is_outside: Any = False
    for axis, n in enumerate(x.shape):
        at = _inside(points[axis], n, mode)
        if mode == "constant":
            is_outside = is_outside | (at < 0) | (at > n - 1)
        if order == 0:
            axes.append([(xp.floor(at + 0.5), None)])
        else:
            low = xp.floor(at)
            axes.append([(low, 1.0 - (at - low)), (low + 1.0, at - low)])
    total: Any = None
    for corner in itertools.product(*axes):
        index, weight = [], None
        is_beyond: Any = False
        for (k, w), n in zip(corner, x.shape):
            integral = cast(as_traced(k), np.int64)
            is_beyond = is_beyond | (integral < 0) | (integral > n - 1)
            index.append(_neighbour(integral, n, mode))
            weight = w if weight is None or w is None else weight * w
        value = x[tuple(broadcast_together(*index))]
        if mode == "grid-constant":
            value = xp.where(is_beyond, cval, value)
        term = value if weight is None else weight * value
        total = term if total is None else total + term
    result = xp.where(is_outside, cval, total) if mode == "constant" else total
    return cast(xp.round(result) if dtype.kind in "iu" else result, dtype)


# rank filters


def _windows(x: Any, shape: Sequence[int], mode: str, cval: Any, origins: Sequence[Any]) -> list[Any]:
    """Return the array shifted to each offset of a window; a positive origin moves the window to the left."""
    margins = []
    for n, origin in zip(shape, origins):
        before = n // 2 + operator.index(origin)
        if not 0 <= before < n:
            raise ValueError("invalid origin")
        margins.append((before, n - 1 - before))
    padded = _pad(x, margins, mode, cval)
    shifted_arrays = []
    for offset in itertools.product(*map(range, shape)):
        shifted = padded
        for axis, start in enumerate(offset):
            shifted = part(shifted, axis, start, x.shape[axis])
        shifted_arrays.append(shifted)
    return shifted_arrays


def _register_extreme(name: str, pick: Callable[[Any, Any], Any]) -> None:
    """Register scipy.ndimage.NAME_filter and NAME_filter1d, for boxes (filtered axis by axis) and footprints."""

    def along_axis(
        input: Any, size: Any, axis: Any = -1, output: Any = None, mode: str = "reflect", cval: Any = 0.0, origin: Any = 0
    ) -> Any:
        x, dtype = _input(f"{name}_filter1d", input, output)
        n, at = operator.index(size), axis_of(axis, x.ndim)
        if n < 1:
            raise RuntimeError("incorrect filter size")
        shape = [n if k == at else 1 for k in range(x.ndim)]
        origins = [origin if k == at else 0 for k in range(x.ndim)]
        return cast(functools.reduce(pick, _windows(x, shape, mode, cval, origins)), dtype)

    def box(
        input: Any, size: Any = None, footprint: Any = None, output: Any = None, mode: Any = "reflect", cval: Any = 0.0,
        origin: Any = 0, *, axes: Any = None,
    ) -> Any:  # fmt: skip
        size = static_ints(size)
        if footprint is None and size is None:
            raise RuntimeError("no footprint provided")
        if footprint is None or np.all(footprint):
            sizes = size if footprint is None else np.shape(footprint)

            def once(x: Any, axis: int, how: str, n: Any, shift: Any) -> Any:
                return along_axis(x, n, axis, output, how, cval, shift) if n > 1 else x

            result: Any = _along_axes(once, input, axes, mode, sizes, origin)
            return cast(result, result.dtype if output is None else np.dtype(output))
        if axes is not None:
            raise TraceError(f"scipy.ndimage.{name}_filter of traced arrays with axes and a footprint is not supported; use size")
        x, dtype = _input(f"{name}_filter", input, output)
        chosen = np.asarray(footprint, bool)
        if chosen.ndim != x.ndim:
            raise RuntimeError("footprint array has incorrect shape.")
        if not chosen.any():
            raise ValueError("All-zero footprint is not supported.")
        windows = _windows(x, chosen.shape, mode, cval, _per_axis(origin, x.ndim))
        return cast(functools.reduce(pick, itertools.compress(windows, chosen.ravel())), dtype)

    twin_of(f"scipy.ndimage.{name}_filter1d")(along_axis)
    twin_of(f"scipy.ndimage.{name}_filter")(box)


_register_extreme("maximum", lambda a, b: xp.where(b > a, b, a))
_register_extreme("minimum", lambda a, b: xp.where(b < a, b, a))


def _ranked(x: Any, shape: Sequence[int], rank: int, mode: str, cval: Any, origins: Sequence[Any]) -> Any:
    """Return the element of rank ``rank`` in each window."""
    return xp.sort(xp.stack(_windows(x, shape, mode, cval, origins), axis=0), axis=0)[rank]


@twin_of("scipy.ndimage.median_filter")
def median_filter(
    input: Any, size: Any = None, footprint: Any = None, output: Any = None, mode: str = "reflect", cval: Any = 0.0,
    origin: Any = 0, *, axes: Any = None,
) -> Any:  # fmt: skip
    if footprint is not None or axes is not None:
        raise TraceError("scipy.ndimage.median_filter of traced arrays with a footprint or axes is not supported; use size")
    if size is None:
        raise RuntimeError("no footprint or filter size provided")
    x, dtype = _input("median_filter", input, output)
    shape = _per_axis(static_ints(size), x.ndim)
    result = _ranked(x, shape, int(np.prod(shape)) // 2, mode, cval, _per_axis(origin, x.ndim))
    return cast(result, dtype)


def _median(name: str, volume: Any, kernel_size: Any) -> Any:
    x = as_traced(volume)
    if x.dtype.kind not in "iu" and x.dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype={x.dtype} is not supported by {name}")
    if not x.ndim:
        x = reshaped(x, (1,))
    kernel_size = static_ints(kernel_size)
    sizes = [int(n) for n in _per_axis(3 if kernel_size is None else kernel_size, x.ndim)]
    if any(n % 2 != 1 for n in sizes):
        raise ValueError("Each element of kernel_size should be odd.")
    return _ranked(x, sizes, int(np.prod(sizes)) // 2, "constant", 0, [0] * x.ndim)


@twin_of("scipy.signal.medfilt")
def medfilt(volume: Any, kernel_size: Any = None) -> Any:
    return _median("medfilt", volume, kernel_size)
