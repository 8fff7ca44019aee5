"""Functions that create arrays. A call without traced arguments is resolved by name: in a trace, the function's twin replaces
it.

zeros, ones, empty, full, eye and identity return traced arrays, which the function may write into. Functions that only count
or space static numbers (arange, linspace) return a NumPy array, so that it can still serve as a static index.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import is_value_size
from pullback.ir.shapes.symbolic import lifted, plain
from pullback.tracer.arrays.arguments import as_bool, new_shape, positions, refuse, reshaped, shape_of, xp
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.labelled import Labelled, array_behind
from pullback.tracer.arrays.make import (
    as_stored,
    as_traced,
    broadcast_into,
    broadcast_together,
    cast,
    convert,
    created,
    emit,
    expand,
    extent_of,
    fresh,
    full,
    holds_traced,
    is_special_array,
    number_of_extent,
    result_type,
    row_major_results,
    static_ints,
    stored,
    strides_of,
    wrapping,
)
from pullback.tracer.arrays.masked import Selection
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.strides import Strides, is_column_major, is_row_major
from pullback.tracer.arrays.tables import CLASSES, implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import is_computed, value_extent
from pullback.tracer.arrays.views import view
from pullback.tracer.functions.numpy.shape import band
from pullback.tracer.user_code.errors import TraceError

FLOAT: Any = np.float64


def _check_options(function: str, order: Any = "C", device: Any = None, subok: Any = True) -> None:
    refuse(
        function,
        order=None if order in ("C", "K", "A", "F", None) else order,
        device=None if device == "cpu" else device,
    )


def _in_order(order: Any, x: TracedArray, like: TracedArray | None = None) -> TracedArray:
    """Return a new array with NumPy's memory order ``order``; "K" and "A" take the order of ``like``."""
    array = created(x)
    array.is_dense = array.ndim < 2 or order == "C" or (order in ("K", "A", None) and (like is None or row_major_results(like)))
    return array


@twin(np.zeros)
@implements(np.zeros)
def zeros(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> TracedArray:
    _check_options("zeros", order, device)
    return _in_order(order, full(new_shape(shape), 0, dtype or FLOAT))


@twin(np.empty)
@implements(np.empty)
def empty(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> TracedArray:
    _check_options("empty", order, device)
    return _in_order(order, full(new_shape(shape), 0, dtype or FLOAT))


@twin(np.ones)
@implements(np.ones)
def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> TracedArray:
    _check_options("ones", order, device)
    return _in_order(order, full(new_shape(shape), 1, dtype or FLOAT))


@twin(np.full)
@implements(np.full)
def full_(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> TracedArray:
    _check_options("full", order, device)
    value = as_traced(fill_value)
    return _in_order(order, broadcast_into(_converted(value, value.dtype if dtype is None else dtype), new_shape(shape)))


@twin(np.eye)
@implements(np.eye)
def eye(
    N: Any,
    M: Any = None,
    k: Any = 0,
    dtype: Any = float,
    order: str = "C",
    *,
    device: Any = None,
    like: Any = None,
) -> TracedArray:
    _check_options("eye", order, device)
    shape = new_shape((N, N if M is None else M))
    return cast(band(shape, operator.index(k), "eq"), dtype)


@twin(np.identity)
@implements(np.identity)
def identity(n: Any, dtype: Any = None, *, like: Any = None) -> TracedArray:
    return eye(n, dtype=dtype or FLOAT)


@twin(np.tri)
@implements(np.tri)
def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, *, like: Any = None) -> TracedArray:
    shape = (n if type(n) is not int else max(n, 0) for n in shape_of((N, N if M is None else M)))
    return cast(band(tuple(shape), operator.index(k), "le"), dtype)


def _converted(value: Any, dtype: Any) -> TracedArray:
    """Convert a value as NumPy does when it copies into an array of ``dtype``; a Python complex gives its real part."""
    x = as_traced(value)
    return convert(wrapping(x) if x.weak == "complex" else x, dtype)


def _like(a: Any, value: Any, dtype: Any, shape: Any, order: Any) -> TracedArray:
    x = as_traced(a)
    target = x.dtype if dtype is None else np.dtype(dtype)
    filled = _converted(value, target)
    return _in_order(order, broadcast_into(filled, x.shape if shape is None else new_shape(shape)), x)


@implements(np.zeros_like)
def zeros_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> TracedArray:
    _check_options("zeros_like", order, device)
    return _like(a, 0, dtype, shape, order)


@implements(np.empty_like)
def empty_like(
    prototype: Any,
    /,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> TracedArray:
    _check_options("empty_like", order, device)
    return _like(prototype, 0, dtype, shape, order)


@implements(np.ones_like)
def ones_like(
    a: Any, dtype: Any = None, order: str = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> TracedArray:
    _check_options("ones_like", order, device)
    return _like(a, 1, dtype, shape, order)


@implements(np.full_like)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> TracedArray:
    _check_options("full_like", order, device)
    return _like(a, fill_value, dtype, shape, order)


# twins of *_like for a static prototype: the result must be writable in the trace
for _original, _twin in (
    (np.zeros_like, zeros_like),
    (np.ones_like, ones_like),
    (np.empty_like, empty_like),
    (np.full_like, full_like),
):
    twin(_original)(_twin)


# arrays from existing data


def writable(array: Any) -> Any:
    """Wrap an array of static values in a traced array if this trace writes traced values into such arrays; else return it
    unchanged."""
    root = frame_of().root
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        return array
    if not root.traces_made:
        root.has_static_arrays = True
        return array
    traced = created(as_traced(array))
    traced.known = (array, frozenset())
    return traced


def _of_static_values(function: Any, computed: Any = None) -> Any:
    """Return a function of NumPy that makes arrays, whose results this trace may write traced values into. ``computed``: the same
    function of sizes that are traced."""

    @functools.wraps(function)
    def create(*args: Any, **kwargs: Any) -> Any:
        if computed is not None and any(map(is_computed, (*args, *kwargs.values()))):
            return computed(*args, **kwargs)
        result = function(*args, **kwargs)
        return tuple(map(writable, result)) if type(result) is tuple else writable(result)

    return create


def _window(weights: Callable[[Any], Any]) -> Any:
    """Return a window of a traced number of points. ``weights``: those of points between -1 and 1."""

    def window(M: Any) -> Any:
        count = value_extent(as_traced(np.maximum(M, 0)), least=0)
        gaps = as_traced(xp.maximum(as_traced(count) - 1, 1))
        return weights((2.0 * positions((count,), 0) - (as_traced(count) - 1)) / gaps)

    return window


def triu_indices(n: Any, k: Any = 0, m: Any = None) -> Any:
    """Return the indices of ``np.triu_indices``; the sizes may be traced."""
    return np.nonzero(np.logical_not(tri(n, m, operator.index(k) - 1, bool)))


def tril_indices(n: Any, k: Any = 0, m: Any = None) -> Any:
    """Return the indices of ``np.tril_indices``; the sizes may be traced."""
    return np.nonzero(tri(n, m, operator.index(k), bool))


def _diag_indices(n: Any, ndim: Any = 2) -> Any:
    return (arange(n),) * operator.index(ndim)


for _creation, _computed in {
    np.bartlett: _window(lambda t: xp.where(t <= 0, 1 + t, 1 - t)),
    np.blackman: _window(lambda t: 0.42 + 0.5 * np.cos(np.pi * t) + 0.08 * np.cos(2.0 * np.pi * t)),
    np.hamming: _window(lambda t: 0.54 + 0.46 * np.cos(np.pi * t)),
    np.hanning: _window(lambda t: 0.5 + 0.5 * np.cos(np.pi * t)),
    np.diag_indices: _diag_indices, np.fft.fftfreq: None, np.fft.rfftfreq: None,
    np.tril_indices: tril_indices, np.triu_indices: triu_indices, np.vander: None,
}.items():  # fmt: skip
    twin(_creation)(_of_static_values(_creation, _computed))


class _ArrayMeta(type):
    """The metaclass of the replacement for ``np.ndarray``: a call creates a traced array, other uses behave as ``np.ndarray``."""

    def __call__(
        cls, shape: Any, dtype: Any = float, buffer: Any = None, offset: Any = 0, strides: Any = None, order: Any = None
    ) -> Any:
        if buffer is not None or strides is not None:
            raise TraceError("np.ndarray over a buffer, or with strides, cannot be written with traced values; use np.empty")
        return empty(shape, dtype, order or "C")

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, np.ndarray) or (isinstance(value, TracedArray) and bool(value.ndim or value.is_cell))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, np.ndarray)

    def __getattr__(cls, name: str) -> Any:
        return getattr(np.ndarray, name)


class ArrayTwin(metaclass=_ArrayMeta):
    """The replacement for ``np.ndarray`` in a trace: calling it returns a traced array."""


CLASSES[np.ndarray] = ArrayTwin


@twin(np.array)
@implements(np.array)
def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: Any = True,
    order: Any = "K",
    subok: Any = False,
    ndmin: int = 0,
    like: Any = None,
) -> Any:
    """Return a writable traced array if ``object`` holds traced values or floats; static integers, bools and other objects
    give a NumPy array."""
    if type(object) is Labelled:
        object = array_behind(object)
    if isinstance(object, Selection):
        return object.copy() if dtype is None else object.astype(dtype)
    if hasattr(type(object), "__array__") and not isinstance(object, np.ndarray | np.generic | TracedArray):
        object = object.__array__()
    if not holds_traced(object) and like is None:
        static = lifted(np.array, object, dtype, ndmin=ndmin)
        return fresh(as_traced(static)) if static.dtype.kind == "f" and static.ndim else writable(static)
    x = as_traced(object) if dtype is None else as_stored(object, dtype)
    x = cast(x, x.dtype)
    if x.ndim < ndmin:
        x = reshaped(x, (1,) * (ndmin - x.ndim) + x.shape)
    return _in_order(order, x, x) if copy else x


@twin(np.asarray, np.asarray_chkfinite)
@implements(np.asarray, np.asarray_chkfinite)
def asarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: Any = None,
    copy: Any = None,
    like: Any = None,
) -> Any:
    if type(a) is Labelled:
        a = array_behind(a)
        if isinstance(a, Selection) and dtype is None and not copy:
            return a
    if isinstance(a, np.ndarray) and dtype is None and not copy:
        return a if not is_special_array(a) else np.asarray(a)
    if isinstance(a, TracedArray) and not copy:
        result = stored(a, a.dtype if dtype is None else dtype)
        return result if result.ndim or result.is_cell else created(result)
    return array(a, dtype, like=like)


@twin(np.asanyarray)
@implements(np.asanyarray)
def asanyarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: Any = None,
    copy: Any = None,
    like: Any = None,
) -> Any:
    return np.asanyarray(a, dtype) if is_special_array(a) else asarray(a, dtype, order, device=device, copy=copy, like=like)


def _any_traced(*values: Any) -> bool:
    return any(isinstance(v, TracedArray) for v in values)


def _with_layout(a: Any, dtype: Any, in_order: Callable[[Sequence[int], Strides], bool]) -> Any:
    """Return ``a`` itself if ``in_order`` holds for its shape and strides, else a copy.

    If the strides are unknown the result is a view that can neither be written nor read after a write to ``a``.
    """
    result = asarray(a, dtype)
    if result is not a or not isinstance(a, TracedArray):
        return result
    strides = strides_of(a)
    if strides is None:
        return view(result, a)
    if in_order(a.shape, strides):
        return a
    result = fresh(a)
    result.is_dense = in_order is is_row_major
    return result


@twin(np.ascontiguousarray)
@implements(np.ascontiguousarray)
def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    result = _with_layout(a, dtype, is_row_major)
    return result if np.ndim(result) else np.atleast_1d(result)


@twin(np.asfortranarray)
@implements(np.asfortranarray)
def asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    result = _with_layout(a, dtype, is_column_major)
    return result if np.ndim(result) else np.atleast_1d(result)


@twin(np.require)
@implements(np.require)
def require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Any:
    wanted = {str(r).upper()[:1] for r in requirements or ()}
    if {"C", "F"} <= wanted:
        raise ValueError('Cannot specify both "C" and "F" order')
    if "O" in wanted:
        return array(a, dtype)
    if not wanted & {"C", "F"}:
        return asarray(a, dtype)
    return _with_layout(a, dtype, is_column_major if "F" in wanted else is_row_major)


@twin(np.arange)
@implements(np.arange)
def arange(*args: Any, dtype: Any = None, device: Any = None, like: Any = None, **kwargs: Any) -> Any:
    """Return ``np.arange``. Of static bounds it is a NumPy array; otherwise its length is an extent by value."""
    values = [*args, *kwargs.values()]
    if any(map(is_computed, values)):
        return _computed_arange(*args, dtype=dtype, **kwargs)
    static = [_static_number(v) for v in values]
    names = dict(zip(kwargs, static[len(args) :], strict=True))
    result = lifted(np.arange, *static[: len(args)], dtype=dtype, **names)
    frame_of().root.counts(plain(result))
    return writable(result) if like is None else as_traced(result)


def _computed_arange(*args: Any, dtype: Any = None, start: Any = None, stop: Any = None, step: Any = None) -> TracedArray:
    """Return ``np.arange`` of traced bounds, element by element as NumPy computes it: the first one plus multiples of the
    difference of the first two."""
    if len(args) == 1 and is_value_size(args[0]) and start is None and step is None and dtype is None:
        return created(positions((args[0],), 0))
    bounds = [start, stop, step]
    for k, value in enumerate(args if len(args) > 1 else (None, *args)):
        bounds[k] = value
    start, stop, step = (as_traced(default if v is None else v) for v, default in zip(bounds, (0, 0, 1), strict=True))
    kind = np.dtype(result_type(start, stop, step) if dtype is None else dtype)
    zero_step = as_traced(step == 0)
    is_python = all(v.weak in ("int", "float") for v in (start, stop, step))
    error = ("ZeroDivisionError", "division by zero") if is_python else ("ValueError", "Maximum allowed size exceeded")
    emit("check", as_bool(xp.logical_not(zero_step)), error=error[0], message=error[1])
    if all(v.dtype.kind in "iub" for v in (start, stop, step)):
        first, last, by = (cast(v, np.int64) for v in (start, stop, step))
        count = -((first - last) // by)
    else:
        first, last, by = (cast(v, np.float64) for v in (start, stop, step))
        quotient = xp.ceil((last - first) / by)
        valid = xp.isfinite(quotient) & (xp.abs(quotient) < 2.0**62)
        emit("check", as_bool(as_traced(valid)), error="ValueError", message="arange: cannot compute length")
        count = cast(as_traced(quotient), np.int64)
    length = value_extent(as_traced(xp.maximum(count, 0)), least=0)
    start, second = cast(start, kind), cast(as_traced(start + step), kind)
    return created(as_traced(start + cast(positions((length,), 0), kind) * (second - start)))


def _static_number(value: Any) -> Any:
    if not isinstance(value, TracedArray):
        return value
    return operator.index(value) if value.dtype.kind in "iu" else float(value)


NEGATIVE_NUMBER = "Number of samples must be non-negative."
"""The message for a negative number of samples."""


@twin(np.linspace)
@implements(np.linspace)
def linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    if not _any_traced(start, stop) and not is_computed(num):
        spaced = lifted(xp.linspace, start, stop, extent_of(num), endpoint, retstep, dtype, axis)
        return (writable(spaced[0]), spaced[1]) if retstep else writable(spaced)
    if is_computed(num):
        count = value_extent(num, message=NEGATIVE_NUMBER)
    else:
        count = operator.index(num)
        if count < 0:
            raise ValueError(f"Number of samples, {num}, must be non-negative.")
    ends = as_traced(start), as_traced(stop)
    first, last = broadcast_together(*(cast(end, result_type(*ends, as_traced(1.0))) for end in ends))
    delta = last - first
    index = expand(cast(positions((count,), 0), delta.dtype), range(1, delta.ndim + 1))
    gaps = count - 1 if endpoint else count
    if is_value_size(count):
        divisor = as_traced(gaps)
        step = as_traced(xp.where(divisor > 0, delta / xp.maximum(divisor, 1), np.nan))
        result = as_traced(index * expand(as_traced(xp.where(divisor > 0, step, delta)), (0,)) + expand(first, (0,)))
        if endpoint:
            is_last = expand(as_traced((positions((count,), 0) == divisor) & (divisor > 0)), range(1, delta.ndim + 1))
            result = as_traced(xp.where(is_last, expand(cast(last, result.dtype), (0,)), result))
    else:
        step = as_traced(delta / gaps if gaps else delta * np.nan)
        result = index * expand(step if gaps else delta, (0,)) + expand(first, (0,))
    if endpoint and not is_value_size(count) and count > 1:
        result = xp.concatenate([result[:-1], expand(cast(last, result.dtype), (0,))])
    if dtype is not None:
        result = cast(as_traced(xp.floor(result) if np.issubdtype(dtype, np.integer) else result), dtype)
    result = xp.moveaxis(result, 0, axis)
    return (result, step) if retstep else result


@twin(np.logspace)
@implements(np.logspace)
def logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: bool = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    if not _any_traced(start, stop, base) and not is_computed(num):
        return writable(lifted(np.logspace, start, stop, extent_of(num), endpoint, base, dtype, axis))
    result = np.power(base, linspace(start, stop, num, endpoint, axis=axis))
    return result if dtype is None else cast(result, dtype)


@twin(np.geomspace)
@implements(np.geomspace)
def geomspace(start: Any, stop: Any, num: Any = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Any:
    """Return a geometric sequence between ends of one sign, or complex ends, which are divided by the sign of the first."""
    if not _any_traced(start, stop) and not is_computed(num):
        return lifted(np.geomspace, start, stop, extent_of(num), endpoint, dtype, axis)
    count = value_extent(num, message=NEGATIVE_NUMBER) if is_computed(num) else operator.index(num)
    ends = [as_traced(v) for v in (start, stop)]
    for v in ends:
        emit("check", as_traced(xp.all(v != 0)), error="ValueError", message="Geometric sequence cannot include zero")
    kind = np.result_type(*(v.dtype if v.literal is None else v.literal for v in ends), np.float64)
    first, last = broadcast_together(*(cast(v, kind) for v in ends))
    sign = xp.sign(first)
    logs = [xp.log10(v / sign) for v in (first, last)]
    result = xp.power(10.0, linspace(*logs, count, endpoint)) * sign
    if is_value_size(count):
        index = expand(positions((count,), 0), range(1, result.ndim))
        is_last = (index == number_of_extent(count) - 1) & (index > 0)
        result = xp.where(index == 0, expand(first, (0,)), result)
        result = xp.where(is_last, expand(last, (0,)), result) if endpoint else result
    elif count > 0:
        result = xp.concatenate([expand(first, (0,)), result[1:]])
    if not is_value_size(count) and count > 1 and endpoint:
        result = xp.concatenate([result[:-1], expand(last, (0,))])
    result = xp.moveaxis(result, 0, axis)
    return result if dtype is None else cast(result, dtype)


@twin(np.indices)
@implements(np.indices)
def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """Return ``np.indices``; of static dimensions it is a NumPy array."""
    dimensions = tuple(dimensions)
    if not any(map(is_computed, dimensions)):
        grid = lifted(np.indices, static_ints(dimensions), dtype, sparse)
        return tuple(map(writable, grid)) if sparse else writable(grid)
    shape = new_shape(dimensions)
    if sparse:
        lines = (positions((n,), 0, np.int64) for n in shape)
        return tuple(created(cast(expand(x, [j for j in range(len(shape)) if j != k]), dtype)) for k, x in enumerate(lines))
    return created(cast(as_traced(xp.stack([positions(shape, k) for k in range(len(shape))])), dtype))


@implements(np.kaiser)
def kaiser(M: Any, beta: Any) -> Any:
    count = operator.index(M)
    if count <= 1:
        return full((max(count, 0),), 1, np.float64)
    middle = (count - 1) / 2.0
    slope = as_traced(beta) * 1.0
    return xp.i0(slope * np.sqrt(1 - ((lifted(np.arange, count) - middle) / middle) ** 2.0)) / xp.i0(slope)


@implements(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> tuple[TracedArray, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    rank = len(xi)
    arrays = [as_traced(x) for x in xi]
    grids = []
    for k, x in enumerate(arrays):
        at = 1 - k if indexing == "xy" and rank > 1 and k < 2 else k
        flat = reshaped(x, (x.size,))
        grids.append(expand(flat, [j for j in range(rank) if j != at]))
    if sparse:
        return tuple(fresh(g) for g in grids)
    return tuple(fresh(g) for g in broadcast_together(*grids))


@implements(np.vander)
def vander(x: Any, N: Any = None, increasing: bool = False) -> TracedArray:
    a = as_traced(x)
    if a.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    count = a.size if N is None else operator.index(N)
    powers = lifted(np.arange, count) if increasing else lifted(np.arange, count)[::-1]
    a = cast(a, np.result_type(a.dtype, int))
    columns = [np.ones_like(a) if p == 0 else a ** int(p) for p in powers]
    return xp.stack(columns, 1)


# functions with an effect outside the trace


@twin(np.load, np.loadtxt, np.genfromtxt, np.fromfile)
def from_a_file(*args: Any, **kwargs: Any) -> Any:
    raise TraceError("a file is read once, when the function is traced; read it outside and pass the array")


@twin(np.errstate)
def errstate(**kwargs: Any) -> Any:
    """Return a context in which nothing is raised, as in compiled code; raises TraceError for a setting that would raise or
    report."""
    for category, action in kwargs.items():
        if action in ("raise", "call", "print", "log") or category == "call":
            raise TraceError(
                f"np.errstate({category}={action!r}): compiled code neither raises nor reports floating-point errors; "
                'use "ignore" or "warn"; pb.jit(debug=True) raises at the first step that makes a NaN or an infinity'
            )
    return np.errstate(**kwargs)


@twin(np.seterr, np.seterrcall)
def seterr(*args: Any, **kwargs: Any) -> Any:
    raise TraceError("np.seterr changes a setting outside the function; call it outside, or use np.errstate")
