"""Functions that call a user's function on elements or slices: vectorize, piecewise, apply_along_axis and similar ones."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pullback.tracer.arrays.arguments import as_array, axis_of, choose_where, reshaped, xp
from pullback.tracer.arrays.make import as_stored, as_traced, broadcast_to, broadcast_together, cast, full
from pullback.tracer.arrays.mixed_numbers import DTYPES
from pullback.tracer.arrays.replacements import kind_twin, takes_traced, twin
from pullback.tracer.arrays.tables import implements
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.names.proxies import Outside
from pullback.tracer.transforms.vmap import over_axes, over_elements
from pullback.tracer.user_code.errors import TraceError

if TYPE_CHECKING:
    from pullback.tracer.names.resolver import Names

_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}


class Vectorized:
    """``np.vectorize(pyfunc, ...)`` in a trace: the function is traced once for all elements."""

    def __init__(
        self, pyfunc: Any = None, otypes: Any = None, doc: str | None = None, excluded: Any = None, cache: bool = False,
        signature: Any = None,
    ) -> None:  # fmt: skip
        self.pyfunc = pyfunc
        self.otypes = otypes
        self.excluded = set(excluded or ())
        self.signature = signature
        self.options = {"otypes": otypes, "doc": doc, "excluded": excluded, "cache": cache, "signature": signature}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.pyfunc is None:
            return Vectorized(*args, **{k: v for k, v in self.options.items() if v is not None})
        if self.signature is not None:
            raise TraceError("np.vectorize with signature= is not supported; write the loop, or an expression of whole arrays")
        names = [k for k in range(len(args)) if k not in self.excluded], [k for k in kwargs if k not in self.excluded]
        varying = [args[k] for k in names[0]] + [kwargs[k] for k in names[1]]

        def function(*values: Any) -> Any:
            remaining = iter(values)
            positional = [next(remaining) if k in names[0] else a for k, a in enumerate(args)]
            return self.pyfunc(*positional, **{k: next(remaining) if k in names[1] else v for k, v in kwargs.items()})

        return _over_all_elements(function, [as_traced(g) for g in varying], _types(self.otypes))


def _types(otypes: Any) -> list[Any] | None:
    if otypes is None:
        return None
    return [np.dtype(t) for t in otypes]


def _over_all_elements(function: Callable[..., Any], arrays: list[TracedArray], otypes: list[Any] | None) -> Any:
    if not arrays:
        return function()
    arrays = broadcast_together(*arrays)
    shape, size = arrays[0].shape, arrays[0].size
    if not size and otypes is None:
        raise ValueError("cannot call `vectorize` on size 0 inputs unless `otypes` is set")
    vectors = [reshaped(cast(x, x.dtype), (x.size,)) for x in arrays]
    if otypes is None:
        first = function(*(v[0] for v in vectors))
        firsts = first if isinstance(first, tuple) else (first,)
        otypes = [as_traced(f).dtype for f in firsts]
    kinds = [_KINDS[v.dtype.kind] for v in vectors]
    widened = [cast(v, DTYPES[k]) for v, k in zip(vectors, kinds)]
    result, columns = over_elements(function, widened, kinds)
    if any(c.ndim > 1 for c in columns):
        raise ValueError("setting an array element with a sequence.")
    results = tuple(as_array(reshaped(cast(c, d), shape)) for c, d in zip(columns, otypes))
    return results if isinstance(result, tuple) else results[0]


@twin(np.vectorize)
def vectorize(*args: Any, **kwargs: Any) -> Vectorized:
    return Vectorized(*args, **kwargs)


class _OutsideVectorized(Outside):
    """An np.vectorize object that was created outside the trace."""

    __slots__ = ()
    __class__ = property(lambda self: type(self._real))

    def _read(self, name: str) -> Any:
        return self._resolve(name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        real = self._real
        if not takes_traced(args, kwargs) and not callable(real.pyfunc):
            return real(*args, **kwargs)
        excluded = real.excluded
        return Vectorized(self.pyfunc, real.otypes, None, excluded, False, real.signature)(*args, **kwargs)


@kind_twin("numpy.vectorize")
def outside_vectorized(value: Any, names: Names) -> _OutsideVectorized:
    return _OutsideVectorized(value, names)


# along axes


@implements(np.apply_along_axis)
def apply_along_axis(func1d: Callable[..., Any], axis: Any, arr: Any, *args: Any, **kwargs: Any) -> TracedArray:
    """Apply ``func1d`` along an axis; it is traced once for all slices."""
    x = as_traced(arr)
    at = axis_of(axis, x.ndim)
    x = xp.moveaxis(x, at, -1)
    batch = x.shape[:-1]
    if 0 in batch:
        raise ValueError("Cannot apply_along_axis when any iteration dimensions are 0")
    rows = reshaped(x, (math.prod(batch), x.shape[-1]))
    result = over_axes(lambda row: as_traced(func1d(row, *args, **kwargs)), (rows,), {})
    result = reshaped(result, (*batch, *result.shape[1:]))
    inside = range(len(batch), result.ndim)
    return xp.moveaxis(result, tuple(inside), tuple(range(at, at + len(inside)))) if inside else result


@implements(np.apply_over_axes)
def apply_over_axes(func: Callable[..., Any], a: Any, axes: Any) -> TracedArray:
    x = as_traced(a)
    for axis in (axes,) if np.ndim(axes) == 0 else axes:
        result = as_traced(func(x, operator.index(axis)))
        x = result if result.ndim == x.ndim else xp.expand_dims(result, axis)
    return x


# piecewise functions


@implements(np.piecewise)
def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> TracedArray:
    """Evaluate each function on all of ``x`` and select by the conditions; the last condition that holds wins.

    The functions must work element by element.
    """
    a = as_traced(x)
    conditions = list(condlist) if isinstance(condlist, list | tuple) else condlist
    if isinstance(conditions, TracedArray | np.ndarray):
        conditions = [conditions] if conditions.ndim <= 1 and a.ndim == conditions.ndim else list(conditions)
    elif not conditions or np.isscalar(conditions[0]) or (getattr(conditions[0], "ndim", 1) == 0 and a.ndim):
        conditions = [conditions]
    conditions = [broadcast_to(cast(as_traced(c), np.bool_), a.shape) for c in conditions]
    if len(funclist) == len(conditions) + 1:
        covered = conditions[0]
        for condition in conditions[1:]:
            covered = covered | condition
        conditions.append(~covered)
    elif len(funclist) != len(conditions):
        raise ValueError(
            f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} functions are expected"
        )
    result = full(a.shape, 0, a.dtype)
    for condition, function in zip(conditions, funclist):
        value = _piece(function, a, args, kw) if callable(function) else as_stored(function, a.dtype)
        result = choose_where(condition, broadcast_to(cast(value, a.dtype), a.shape), result)
    return as_array(result)


def _piece(function: Callable[..., Any], x: TracedArray, args: Any, kwargs: Any) -> TracedArray:
    vector = reshaped(cast(x, x.dtype), (x.size,))

    def of_one(element: Any) -> Any:
        return reshaped(as_traced(function(reshaped(element, (1,)), *args, **kwargs)), ())

    _, (values,) = over_elements(of_one, [vector], [""])
    return reshaped(values, x.shape)


# functions of iterables


@twin(np.fromiter)
def fromiter(iter: Any, dtype: Any, count: int = -1, *, like: Any = None) -> Any:
    items = [item for k, item in zip(range(count), iter)] if count >= 0 else list(iter)
    if len(items) < count:
        raise ValueError("iterator too short: Expected {count} but iterator had only {len(items)} items.")
    return xp.array(items, dtype=dtype) if not takes_traced(items, {}) else cast(as_traced(items), dtype)


@twin(np.ndenumerate)
def ndenumerate(arr: Any) -> Any:
    if not isinstance(arr, TracedArray):
        return np.ndenumerate(arr)
    return ((index, arr[index]) for index in np.ndindex(arr.shape))


def _refused(name: str, instead: str) -> Any:
    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        raise TraceError(f"{name} of traced arrays is not supported; {instead}")

    return refused


twin(np.frompyfunc)(_refused("np.frompyfunc", "use np.vectorize, whose results are numbers"))
