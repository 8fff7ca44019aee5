"""Convolutions and linear filters of NumPy and scipy.signal, computed directly by sums of products, without Fourier
transforms."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import resolve
from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted
from pullback.tracer.arrays.arguments import axis_of, part, positions, reshaped, xp
from pullback.tracer.arrays.make import as_traced, broadcast_to, cast, emit, full, number_of_extent, promote, static_ints
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import check_least
from pullback.tracer.functions.scipy.signal.fft_convolve import fftconvolve
from pullback.tracer.user_code.errors import TraceError

MOST_TERMS = 64
"""The largest kernel, in elements, that is unrolled to a sum of shifted arrays: such a sum is fast, but compiling it takes a
tenth of a second for each dozen elements."""

LONG = 64
"""The threshold, in elements, for convolving floats by Fourier transforms where SciPy may choose the method: both arrays are
longer, and the product of their sizes exceeds its cube."""

MOST_SAMPLES = 256
"""The block length, in samples, of recursive filters of order 2 and above; longer if the order or the square root of the
signal's length exceeds it."""


Sides = Sequence[int]
"""The number of results of a full convolution that are left out at one end of each axis."""


def convolved(a: TracedArray, b: TracedArray, before: Sides = (), after: Sides = ()) -> Any:
    """Return the convolution of two non-empty arrays of one rank and dtype, without some results at both ends of each axis.

    Only overlapping elements are multiplied, so an infinity or NaN reaches only the results that it is part of.
    """
    if b.size > a.size:
        a, b = b, a
    rank = a.ndim
    before, after = before or (0,) * rank, after or (0,) * rank
    ends = list(zip(a.shape, b.shape, before, after))
    shape = tuple(n + m - 1 - first - last for n, m, first, last in ends)
    if b.size <= MOST_TERMS:
        total: Any = None
        for offset in itertools.product(*map(range, b.shape)):
            term = _moved(a, b[offset], [(k, *end) for k, end in zip(offset, ends)], shape)
            total = term if total is None else total if term is None else total + term
        return full(shape, 0, a.dtype) if total is None else total
    if rank == 1:
        return reshaped(_long_rows(reshaped(a, (1, *a.shape)), b, before[0], after[0]), shape)
    space = shape + b.shape
    source_positions = [positions(space, k) - positions(space, rank + k) + before[k] for k in range(rank)]
    return _overlapping(a, b, source_positions)


def _moved(a: TracedArray, tap: Any, ends: Sequence[tuple[int, ...]], shape: Sequence[int]) -> Any:
    """Return ``a * tap`` at its offset among the results, zeros elsewhere; None if all of it is left out."""
    starts: list[int] = []
    for axis, (k, n, m, first, last) in enumerate(ends):
        low, high = max(0, first - k), max(0, last - (m - 1 - k))
        if low or high:
            if low + high >= n:
                return None
            a = part(a, axis, low, n - low - high)
        starts.append(max(0, k - first))
    term = a * tap
    if term.shape == tuple(shape):
        return term
    return emit("pad", term, start=tuple(starts), step=(1,) * len(starts), shape=tuple(shape))


def _overlapping(a: TracedArray, b: TracedArray, source_positions: Sequence[Any]) -> Any:
    """Return sums over the last axes (those of ``b``) of its elements times the elements of ``a`` at some positions.

    A position outside the array contributes 0: its product is masked, because 0 times an infinity would be NaN.
    """
    space = source_positions[0].shape
    inside = [xp.clip(position, 0, n - 1) for position, n in zip(source_positions, a.shape)]
    products: Any = emit("gather", a, *inside, axes=tuple(range(a.ndim))) * broadcast_to(b, space)
    for position, n in zip(source_positions, a.shape):
        products = xp.where((position >= 0) & (position < n), products, cast(as_traced(0.0), a.dtype))
    return xp.sum(products, axis=tuple(range(len(space) - b.ndim, len(space))), dtype=a.dtype)


def _long_rows(rows: TracedArray, taps: TracedArray, before: int = 0, after: int = 0) -> Any:
    """Return the convolution of each row of a matrix with a vector of many taps, without some results at both ends.

    Results whose window is fully inside a row need no masking.
    """
    (count, n), (m,) = rows.shape, taps.shape

    def results(start: int, length: int) -> Any:
        space = (count, length, m)
        return _overlapping(rows, taps, [positions(space, 0), positions(space, 1) - positions(space, 2) + start])

    if m > n or max(before, after) > m - 1:
        return results(before, n + m - 1 - before - after)
    windows: Any = emit("windows", rows, axis=1, shape=(count, n - m + 1, m))
    flipped = emit("flip", taps, axes=(0,))
    pieces = [xp.sum(windows * broadcast_to(flipped, windows.shape), axis=-1, dtype=rows.dtype)]
    if before < m - 1:
        pieces.insert(0, results(before, m - 1 - before))
    if after < m - 1:
        pieces.append(results(n, m - 1 - after))
    return xp.concatenate(pieces, axis=1)


# numpy: vectors


def _vectors(name: str, a: Any, v: Any) -> list[TracedArray]:
    arrays = [as_traced(xp.atleast_1d(as_traced(x))) for x in (a, v)]
    if any(x.ndim != 1 for x in arrays):
        raise ValueError("object too deep for desired array")
    messages = ("a", "v") if name == "convolve" else ("first array argument", "second array argument")
    for x, message in zip(arrays, messages, strict=True):
        check_least(x.size, 1, f"{message} cannot be empty")
    return promote(*arrays)


def _convolved_by_value(x: TracedArray, y: TracedArray, mode: Any, turns: bool = False) -> Any:
    """Return a convolution of vectors whose lengths are by value. ``turns``: as a correlation does, cut an odd number of results
    from the other end if ``y`` is the longer one."""
    space = (x.shape[0] + y.shape[0] - 1, y.shape[0])
    total = _overlapping(x, y, [positions(space, 0) - positions(space, 1)])
    n, m = number_of_extent(x.shape[0]), number_of_extent(y.shape[0])
    short, length = xp.minimum(n, m), xp.maximum(n, m)
    match _MODES.get(mode, mode):
        case "full":
            return total
        case "same":
            first = xp.where(n >= m, (short - 1) // 2, short // 2) if turns else (short - 1) // 2
            return total[first : first + length]
        case "valid":
            return total[short - 1 : length]
    raise ValueError(_WRONG_MODE)


def _sides(short: int, mode: Any) -> tuple[Sides, Sides]:
    """Return how much of a full convolution with a vector of ``short`` elements is left out at both ends."""
    match _MODES.get(mode, mode):
        case "full":
            return (0,), (0,)
        case "same":
            return ((short - 1) // 2,), (short // 2,)
        case "valid":
            return (short - 1,), (short - 1,)
    raise ValueError(_WRONG_MODE)


_MODES: dict[Any, str] = {0: "valid", 1: "same", 2: "full", "v": "valid", "s": "same", "f": "full"}
_WRONG_MODE = "mode must be one of 'valid', 'same', or 'full'"


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    x, y = _vectors("convolve", a, v)
    if is_value_size(x.size) or is_value_size(y.size):
        return _convolved_by_value(x, y, mode)
    if y.size > x.size:
        x, y = y, x
    return convolved(x, y, *_sides(y.size, mode))


def _conjugate(x: Any) -> Any:
    """Return the conjugate of complex numbers; others unchanged, because ``np.conj`` of bools gives int8."""
    return xp.conj(x) if x.dtype.kind == "c" else x


@implements(np.correlate)
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    x, y = _vectors("correlate", a, v)
    if is_value_size(x.size) or is_value_size(y.size):
        return _convolved_by_value(x, as_traced(_conjugate(y[::-1])), mode, turns=True)
    if y.size > x.size:
        return _conjugate(correlate(y, x, mode)[::-1])
    return convolved(x, _conjugate(y[::-1]), *_sides(y.size, mode))


# scipy.signal: arrays


def _convolve(in1: Any, in2: Any, mode: str, method: str = "direct") -> Any:
    a, b = promote(*(cast(as_traced(x), as_traced(x).dtype) for x in (in1, in2)))
    if a.ndim != b.ndim:
        raise ValueError("in1 and in2 should have the same dimensionality")
    if mode not in ("full", "same", "valid"):
        raise ValueError("acceptable mode flags are 'valid', 'same', or 'full'")
    if not a.ndim:
        return a * b
    if not a.size or not b.size:
        return full((0,), 0, a.dtype)
    if mode == "valid" and len({n >= m for n, m in zip(a.shape, b.shape) if n != m}) > 1:
        raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")
    if method not in ("auto", "fft", "direct"):
        raise ValueError("Acceptable method flags are 'auto', 'direct', or 'fft'.")
    is_long = min(a.size, b.size) > LONG and a.size * b.size > LONG**3 and a.dtype.kind in "fc"
    if method == "fft" or (method == "auto" and is_long):
        smooth = fftconvolve(a, b, mode)
        return cast(smooth if a.dtype.kind in "fc" else xp.rint(smooth), a.dtype)
    if mode == "full":
        return convolved(a, b)
    if mode == "same":
        return convolved(a, b, [(m - 1) // 2 for m in b.shape], [m // 2 for m in b.shape])
    sides = [min(n, m) - 1 for n, m in zip(a.shape, b.shape)]
    return convolved(a, b, sides, sides)


@twin_of("scipy.signal.convolve")
def signal_convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    return _convolve(in1, in2, mode, method)


@twin_of("scipy.signal.correlate")
def signal_correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    b = as_traced(in2)
    return _convolve(in1, _conjugate(xp.flip(b)) if b.ndim else b, mode, method)


_EDGES = {
    "fill": "constant",
    "pad": "constant",
    "wrap": "wrap",
    "circular": "wrap",
    **dict.fromkeys(("symm", "symmetric"), "symmetric"),
}


def _plane(a: TracedArray, b: TracedArray, mode: str, boundary: str, fillvalue: Any, late: int = 0) -> Any:
    """Return the convolution of two matrices, the first of which is extended beyond its edges by ``boundary``.

    ``late``: 1 if the later of two middle positions is the centre.
    """
    if mode not in ("full", "same", "valid"):
        raise ValueError("Acceptable mode flags are 'valid', 'same', or 'full'.")
    if boundary not in _EDGES:
        raise ValueError("Acceptable boundary flags are 'fill', 'circular' (or 'wrap'), and 'symmetric' (or 'symm').")
    a, b = promote(a, b)
    if not a.size or not b.size:
        raise TraceError("a convolution of matrices without elements is not supported")
    edges = _EDGES[boundary]
    options = {"constant_values": fillvalue} if edges == "constant" else {}
    padded = as_traced(xp.pad(a, [(m - 1, m - 1) for m in b.shape], edges, **options))
    if mode == "same":
        before, after = ([m - 1 + (m - 1 + side) // 2 for m in b.shape] for side in (late, 1 - late))
    else:
        before = after = [(m - 1) * (1 if mode == "full" else 2) for m in b.shape]
    return convolved(padded, b, before, after)


def _matrices(name: str, in1: Any, in2: Any, mode: str) -> tuple[TracedArray, TracedArray, bool]:
    """Return the operands, for mode "valid" the larger one first, and whether they were swapped."""
    a, b = (cast(x, x.dtype) for x in (as_traced(in1), as_traced(in2)))
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError(f"{name} inputs must both be 2-D arrays")
    if mode != "valid" or all(n >= m for n, m in zip(a.shape, b.shape)):
        return a, b, False
    if not all(n <= m for n, m in zip(a.shape, b.shape)):
        raise ValueError("For 'valid' mode, one must be at least as large as the other in every dimension")
    return b, a, True


@twin_of("scipy.signal.convolve2d")
def convolve2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    a, b, _ = _matrices("convolve2d", in1, in2, mode)
    return _plane(a, b, mode, boundary, fillvalue)


@twin_of("scipy.signal.correlate2d")
def correlate2d(in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0) -> Any:
    a, b, is_swapped = _matrices("correlate2d", in1, in2, mode)
    result = _plane(a, _conjugate(xp.flip(b)), mode, boundary, fillvalue, late=1)
    return xp.flip(result) if is_swapped else result


# filters


@twin_of("scipy.signal.lfilter")
def lfilter(b: Any, a: Any, x: Any, axis: Any = -1, zi: Any = None) -> Any:
    """Filter along an axis: order 0 by a convolution, order 1 by a recurrence, a higher order block by block."""
    numerator, denominator, signal = (as_traced(xp.atleast_1d(as_traced(v))) for v in (b, a, x))
    if numerator.ndim != 1 or denominator.ndim != 1:
        raise ValueError("object of too small depth for desired array")
    numerator, denominator, signal = promote(numerator, denominator, signal)
    if signal.dtype.kind != "f":
        numerator, denominator, signal = (cast(v, np.float64) for v in (numerator, denominator, signal))
    at = axis_of(axis, signal.ndim)
    rows: Any = xp.moveaxis(signal, at, -1)
    lead: Any = denominator[0]
    taps, feedback = numerator / lead, denominator / lead
    order = max(taps.shape[0], feedback.shape[0]) - 1
    n = rows.shape[-1]
    source: Any = _filtered(rows, taps)
    if zi is not None:
        start: Any = cast(as_traced(zi), rows.dtype)
        start = broadcast_to(xp.moveaxis(start, at, -1) if start.ndim == rows.ndim else start, (*rows.shape[:-1], order))
        kept = min(order, n)
        source = source + xp.pad(start[..., :kept], [(0, 0)] * (rows.ndim - 1) + [(0, n - kept)])
    output = _recursive(source, feedback)
    result = xp.moveaxis(output, -1, at)
    if zi is None:
        return result
    return result, xp.moveaxis(_state(rows, output, taps, feedback, start, order), -1, at)


def _filtered(rows: Any, taps: Any) -> Any:
    """Return the first samples of the convolution of each row with the taps."""
    m = taps.shape[0]
    one_row = reshaped(taps, (1,) * (rows.ndim - 1) + taps.shape)
    if not rows.size:
        return rows * taps[0]
    return convolved_rows(rows, one_row, 0, m - 1) if m > 1 else rows * taps[0]


def convolved_rows(rows: Any, taps: Any, before: int = 0, after: int = 0) -> Any:
    """Return the convolution along the last axis, without some results at both ends; the taps have extent 1 along the other
    axes.

    Only overlapping elements are multiplied.
    """
    lead, n, m = rows.shape[:-1], rows.shape[-1], taps.shape[-1]
    shape = (*lead, n + m - 1 - before - after)
    if m > MOST_TERMS:
        flat = reshaped(rows, (math.prod(lead), n))
        return reshaped(_long_rows(flat, reshaped(taps, (m,)), before, after), shape)
    outer_ends = [(0, e, 1, 0, 0) for e in lead]
    terms = [_moved(rows, taps[..., k : k + 1], [*outer_ends, (k, n, m, before, after)], shape) for k in range(m)]
    kept = [term for term in terms if term is not None]
    return sum(kept[1:], kept[0])


def _recursive(source: Any, feedback: Any) -> Any:
    """Return y with sum(feedback[k] * y[i - k]) = source[i], where feedback[0] is 1.

    Computed block by block: each block is a product with the impulse response, to which the last outputs of the previous block
    contribute through ``carry``.
    """
    n, order, last = source.shape[-1], feedback.shape[0] - 1, source.ndim - 1
    if order == 0 or not source.size:
        return source
    if order == 1:
        return emit("linear_recurrence", broadcast_to(-feedback[1], source.shape), source, axis=last, reverse=False)
    length = max(order, min(n, MOST_SAMPLES), math.isqrt(n))
    count = -(-n // length)
    lead = source.shape[:-1]
    blocks = reshaped(xp.pad(source, [(0, 0)] * last + [(0, count * length - n)]), (*lead, count, length))
    response = xp.pad(_impulse_response(feedback, length), (length - 1, 0))
    space = (length, length)
    steps = emit("gather", response, positions(space, 0) - positions(space, 1) + (length - 1), axes=(0,))
    output = blocks @ steps.T
    square = (order, order)
    history = emit("gather", xp.pad(feedback[1:], (0, order)), positions(square, 0) + positions(square, 1), axes=(0,))
    carry = -(steps[:, :order] @ history)
    state: Any = full((*lead, order), 0, source.dtype)
    states = []
    for k in range(count):
        states.append(state)
        ends = output[..., k, length - order :] + state @ carry[length - order :].T
        state = ends[..., ::-1]
    output = output + xp.stack(states, axis=-2) @ carry.T
    return part(reshaped(output, (*lead, count * length)), last, 0, n)


def _impulse_response(feedback: Any, length: int) -> Any:
    """Return the outputs for a one followed by zeros, by powers of the companion matrix; each step doubles their number."""
    order = feedback.shape[0] - 1
    shift = np.eye(order, k=-1)[1:].astype(feedback.dtype)
    power: Any = xp.concatenate([-feedback[None, 1:], as_traced(shift)], axis=0)
    states: Any = as_traced(np.eye(order, 1).astype(feedback.dtype))
    while states.shape[1] < length:
        states = xp.concatenate([states, power @ states], axis=1)
        power = power @ power
    return states[0, :length]


def _state(rows: Any, output: Any, taps: Any, feedback: Any, start: Any, order: int) -> Any:
    """Return the final conditions of the delays, the contributions of past samples to the next outputs."""
    n = rows.shape[-1]
    states = []
    for k in range(order):
        total = start[..., k + n] if k + n < order else full(rows.shape[:-1], 0, rows.dtype)
        for j in range(k + 1, order + 1):
            i = n - (j - k)
            if i >= 0 and j < taps.shape[0]:
                total = total + taps[j] * rows[..., i]
            if i >= 0 and j < feedback.shape[0]:
                total = total - feedback[j] * output[..., i]
        states.append(total)
    return xp.stack(states, axis=-1) if states else full((*rows.shape[:-1], 0), 0, rows.dtype)


@twin_of("scipy.signal.sosfilt")
def sosfilt(sos: Any, x: Any, axis: Any = -1, zi: Any = None) -> Any:
    if zi is not None:
        raise TraceError("scipy.signal.sosfilt of traced arrays with zi= is not supported; use lfilter for each section")
    sections, output = as_traced(sos), x
    if sections.ndim != 2 or sections.shape[1] != 6:
        raise ValueError("sos array must be shape (n_sections, 6)")
    for k in range(sections.shape[0]):
        output = lfilter(sections[k, :3], sections[k, 3:], output, axis)
    return output


@twin_of("scipy.signal.lfilter_zi")
def lfilter_zi(b: Any, a: Any) -> Any:
    """Return the state of a filter after a long run of ones, that of the steady step response."""
    taps, feedback = _same_length(b, a)
    jump = (xp.sum(taps[1:]) - xp.sum(feedback[1:]) * taps[0]) / xp.sum(feedback)
    sums, rests = xp.cumsum(feedback)[:-1], xp.cumsum(taps[1:] - feedback[1:] * taps[0])
    later = sums[1:] * jump - rests[:-1]
    return xp.concatenate([reshaped(jump, (1,)), later])


def _same_length(b: Any, a: Any) -> tuple[Any, Any]:
    """Return the coefficients of a filter, divided by a[0] and padded with zeros to one length."""
    taps, feedback = (cast(as_traced(xp.atleast_1d(as_traced(v))), np.float64) for v in (b, a))
    n = max(taps.shape[0], feedback.shape[0])
    lead: Any = feedback[0]
    return xp.pad(taps, (0, n - taps.shape[0])) / lead, xp.pad(feedback, (0, n - feedback.shape[0])) / lead


@twin_of("scipy.signal.filtfilt")
def filtfilt(
    b: Any, a: Any, x: Any, axis: Any = -1, padtype: Any = "odd", padlen: Any = None, method: str = "pad", irlen: Any = None
) -> Any:
    if method != "pad":
        raise TraceError(f"scipy.signal.filtfilt of traced arrays with method={method!r} is not supported; leave it out")
    if padtype not in ("odd", "even", "constant", None):
        raise ValueError(f"Unknown value '{padtype}' given to padtype. padtype must be 'even', 'odd', 'constant', or None.")
    taps, feedback = _same_length(b, a)
    signal = as_traced(x)
    rows: Any = xp.moveaxis(cast(signal, np.float64), axis_of(axis, signal.ndim), -1)
    edge = 0 if padtype is None else 3 * taps.shape[0] if padlen is None else padlen
    n = rows.shape[-1]
    if n <= edge:
        raise ValueError(f"The length of the input vector x must be greater than padlen, which is {edge}.")
    if edge:
        first, last = rows[..., :1], rows[..., -1:]
        before, after = rows[..., edge:0:-1], rows[..., -2 : -edge - 2 : -1]
        if padtype == "odd":
            before, after = 2.0 * first - before, 2.0 * last - after
        elif padtype == "constant":
            before, after = 0.0 * before + first, 0.0 * after + last
        rows = xp.concatenate([before, rows, after], axis=-1)
    start = lfilter_zi(taps, feedback) if taps.shape[0] > 1 else None
    for _ in range(2):
        state = None if start is None else start * rows[..., :1]
        output = lfilter(taps, feedback, rows, -1, state)
        rows = (output if state is None else output[0])[..., ::-1]
    return xp.moveaxis(part(rows, rows.ndim - 1, edge, n), -1, axis_of(axis, signal.ndim))


@twin_of("scipy.signal.detrend")
def detrend(data: Any, axis: Any = -1, type: str = "linear", bp: Any = 0, overwrite_data: bool = False) -> Any:
    x = as_traced(data)
    x = x if x.dtype.kind in "fc" else cast(x, np.float64)
    if type in ("constant", "c"):
        return x - xp.mean(x, axis=axis, keepdims=True)
    if type not in ("linear", "l"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    at = axis_of(axis, x.ndim)
    rows: Any = xp.moveaxis(x, at, -1)
    n = rows.shape[-1]
    edges = np.sort(np.unique(np.concatenate([np.atleast_1d(bp), [0, n]])))
    if np.any(edges > n):
        raise ValueError("Breakpoints must be less than length of data along given axis.")
    pieces = []
    for first, last in itertools.pairwise(int(e) for e in edges):
        length = last - first
        basis = np.stack([np.ones(length), lifted(np.arange, 1, length + 1) / length], axis=1)
        axes = np.linalg.qr(basis)[0].astype(rows.dtype)
        piece = rows[..., first:last]
        pieces.append(piece - (piece @ axes) @ axes.T)
    return xp.moveaxis(xp.concatenate(pieces, axis=-1), -1, at)


_PADS = {"mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}


@twin_of("scipy.signal.savgol_filter")
def savgol_filter(
    x: Any, window_length: Any, polyorder: Any, deriv: int = 0, delta: float = 1.0, axis: Any = -1, mode: str = "interp",
    cval: float = 0.0,
) -> Any:  # fmt: skip
    if mode not in ("interp", *_PADS):
        raise ValueError("mode must be 'mirror', 'constant', 'nearest' 'wrap' or 'interp'.")
    window_length, polyorder, deriv = static_ints((window_length, polyorder, deriv))
    signal = as_traced(x)
    signal = signal if signal.dtype.kind == "f" else cast(signal, np.float64)
    at = axis_of(axis, signal.ndim)
    rows: Any = xp.moveaxis(signal, at, -1)
    coefficients = resolve("scipy.signal.savgol_coeffs")(window_length, polyorder, deriv=deriv, delta=delta).astype(signal.dtype)
    before = (window_length - 1) // 2 if window_length % 2 else window_length // 2 - 1
    after = window_length - 1 - before
    kernel = reshaped(as_traced(coefficients), (1,) * (rows.ndim - 1) + (window_length,))
    n = rows.shape[-1]
    if mode == "interp":
        if window_length > n:
            raise ValueError("If mode is 'interp', window_length must be less than or equal to the size of x.")
        if window_length % 2 == 0:
            raise TraceError("scipy.signal.savgol_filter of traced arrays with an even window is not supported; use an odd one")
        ends = resolve("scipy.signal.savgol_filter")(np.eye(window_length), window_length, polyorder, deriv, delta, axis=0)
        ends = ends.astype(signal.dtype)
        inner = convolved_rows(rows, kernel, window_length - 1, window_length - 1)
        first = rows[..., :window_length] @ ends[:before].T
        last = rows[..., n - window_length :] @ ends[window_length - after :].T
        result = xp.concatenate([first, inner, last], axis=-1)
    else:
        options = {"constant_values": cval} if mode == "constant" else {}
        padded = xp.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(after, before)], mode=_PADS[mode], **options)
        result = convolved_rows(padded, kernel, window_length - 1, window_length - 1)
    return xp.moveaxis(result, -1, at)


@twin_of("scipy.signal.deconvolve")
def deconvolve(signal: Any, divisor: Any) -> Any:
    num, den = (as_traced(v) if as_traced(v).ndim else reshaped(as_traced(v), (1,)) for v in (signal, divisor))
    for name, x in (("signal", num), ("divisor", den)):
        if x.ndim != 1 or not x.size:
            raise ValueError(f"Parameter {name} must be non-empty 1d array, but its shape is {x.shape}!")
    if den.shape[0] > num.shape[0]:
        return [], num
    impulse = np.zeros(num.shape[0] - den.shape[0] + 1)
    impulse[0] = 1
    quotient: Any = lfilter(num, den, impulse)
    return quotient, num - xp.convolve(den, quotient)


@twin_of("scipy.signal.upfirdn")
def upfirdn(h: Any, x: Any, up: Any = 1, down: Any = 1, axis: Any = -1, mode: Any = "constant", cval: Any = 0) -> Any:
    up, down = static_ints((up, down))
    if mode not in (None, "constant") or isinstance(cval, TracedArray) or cval != 0:
        raise TraceError("scipy.signal.upfirdn of traced arrays with a mode is not supported; pad x by np.pad")
    kernel, a = as_traced(h), as_traced(x)
    if kernel.ndim != 1 or not kernel.size:
        raise ValueError("h must be 1-D with non-zero length")
    if up < 1 or down < 1:
        raise ValueError("Both up and down must be >= 1")
    dtype = np.result_type(kernel.dtype, a.dtype, np.float32)
    kernel, a = cast(kernel, dtype), cast(a, dtype)
    at = axis_of(axis, a.ndim)
    rows: Any = xp.moveaxis(a, at, -1)
    n = rows.shape[-1]
    if not rows.size:
        raise TraceError("scipy.signal.upfirdn of traced arrays without elements is not supported; leave it out")
    zero_stuffed = xp.pad(rows[..., None], [(0, 0)] * rows.ndim + [(0, up - 1)])
    upsampled = reshaped(zero_stuffed, (*rows.shape[:-1], n * up))[..., : (n - 1) * up + 1]
    full_result = convolved_rows(upsampled, reshaped(kernel, (1,) * (rows.ndim - 1) + kernel.shape))
    return xp.moveaxis(full_result[..., ::down], -1, at)
