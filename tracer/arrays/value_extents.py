"""Extents by value while a function is traced: their definitions, the numbers that they stand for, and run-time checks of them.

An extent by value is a ``Size`` (``ir.shapes.by_value``) of the root frame's ``ValueSizes``. Sums and products of sizes and ints
are sizes; any other arithmetic, and every use as an array, is that of a traced Python int.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir.shapes.by_value import LARGEST_EXTENT, ValueSizes, is_value_size, same_extent
from pullback.ir.shapes.polynomials import added
from pullback.ir.shapes.symbolic import Size, of_one_trace, terms_of
from pullback.tracer.arrays.concretize import known_value
from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.make import as_traced, cast, emit, literal
from pullback.tracer.arrays.python_scalars import weak
from pullback.tracer.arrays.replacements import library_twin
from pullback.tracer.arrays.tables import hook
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError

NEGATIVE = "negative dimensions are not allowed"
"""NumPy's message for a negative extent."""


@hook("value_extent")
def value_extent(
    count: Any, least: int | None = None, message: str = NEGATIVE, most: Any = None, is_capacity: bool = False
) -> Any:  # fmt: skip
    """Return a traced int as an extent. The program raises ValueError with ``message`` if it is negative, unless ``least``, a
    lower bound of at least 0, is passed. ``most``: an upper bound, if one is known. ``is_capacity``: results do not depend on the
    extent, so the rows of a batch may share one."""
    if is_value_size(count):
        return count
    frame = frame_of(count)
    if _follows(frame):
        return operator.index(count)
    count = weak(cast(count, np.int64), "int")
    if is_capacity:
        count.bounds = (least or 0, LARGEST_EXTENT)
    value = frame.lift(count)
    known = _known(frame, value)
    if known is not None:
        return known
    if least is None:
        emit("check", emit("ge", count, literal(0, np.int64)), error="ValueError", message=message)
    bound = most if type(most) is int or is_value_size(most) else None
    size = sizes_of(frame).define(count, least or 0, bound, is_capacity)
    params: dict[str, Any] = {"capacity": True} if is_capacity else {}
    emit("define_extent", cast(count, np.int64), extent=(size,), **params)
    frame.value_extents[value] = size
    return size


@hook("is_computed")
def is_computed(x: Any) -> bool:
    """Return whether a value is a traced number of rank 0 whose value is not available during tracing, or an extent by value."""
    if isinstance(x, TracedArray):
        return not x.ndim and x.literal is None and known_value(x) is None and not _follows(frame_of())
    return is_value_size(x)


def _follows(frame: Frame) -> bool:
    """Return whether the trace has numbers of elements guarded, so that they are static."""
    return bool(frame.root.counts_chosen and frame.root.outcomes.follows)


def _known(frame: Frame | None, value: Any) -> Size | None:
    """Return the extent that a frame, or one around it, has defined by a value."""
    while frame is not None:
        if value in frame.value_extents:
            size: Size = frame.value_extents[value]
            return size
        source = frame.sources.get(value)
        value, frame = source if isinstance(source, tuple) else (None, None)
    return None


def sizes_of(frame: Frame) -> ValueSizes:
    """Return the extents by value of the root of a frame."""
    root = frame.root
    if root.value_sizes is None:
        root.value_sizes = ValueSizes(_compute, _decide, _need)
    return root.value_sizes


@hook("number_of_size")
def number_of(size: Any) -> TracedArray:
    """Return an extent by value as a traced Python int."""
    terms: list[Any] = []
    for atoms, factor in size.terms:
        numbers = [size.sizes.numbers[a] for a in atoms]
        terms.append(functools.reduce(operator.mul, numbers if factor == 1 and numbers else [factor, *numbers]))
    total = as_traced(functools.reduce(operator.add, terms))
    frame = frame_of()
    frame.value_extents.setdefault(frame.lift(total), size)
    return total


def seen(x: Any) -> Any:
    """Return an extent, or a shape, for the user's code: extents by value as traced ints."""
    if isinstance(x, tuple):
        return tuple(map(seen, x))
    return number_of(x) if is_value_size(x) else x


def _numbers(x: Any) -> Any:
    """Replace extents by value, in tuples, lists and slices too, by traced ints."""
    if is_value_size(x):
        return number_of(x)
    if type(x) in (tuple, list):
        return type(x)(map(_numbers, x))
    return slice(_numbers(x.start), _numbers(x.stop), _numbers(x.step)) if type(x) is slice else x


def _compute(function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    if function is np.arange:
        return library_twin(function)(*args)
    kwargs = function.keywords if isinstance(function, functools.partial) else {}
    function = function.func if isinstance(function, functools.partial) else function
    try:
        return (library_twin(function) or function)(*map(_numbers, args), **kwargs)
    except TypeError:
        name = getattr(function, "__name__", "a function")
        raise TraceError(f"{name} of a length that depends on values is not supported") from None


def _decide(relation: str, a: Any, b: Any) -> bool:
    if not frame_of().root.outcomes.follows:
        error = TraceError(
            "a length that depends on values is needed while the function is traced, as a fixed one; keep all elements, as by "
            "np.where(mask, x, 0), write what is needed in terms of functions that take any length, or use pb.jit(guards=True)"
        )
        error.wants_counts = True
        raise error
    compared = _RELATIONS[relation](*map(as_traced, map(_numbers, (a, b))))
    return bool(compared)


def _need(size: Any) -> int:
    return operator.index(number_of(size))


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip


@hook("check_extents")
def check_extents(a: Any, b: Any, message: str, error: str = "ValueError") -> None:
    """Emit the check that two extents, one of them by value, are equal, unless they are known to be."""
    if not same_extent(a, b):
        equal = emit("eq", *(cast(as_traced(_numbers(n)), np.int64) for n in (a, b)))
        emit("check", equal, error=error, message=message)


@hook("check_some")
def check_some(extent: Any, message: str) -> bool:
    """Return whether an extent is not 0; for one by value, emit the check that it is not, which raises ValueError."""
    if not is_value_size(extent):
        return bool(extent)
    check_greater(extent, 0, message)
    return True


def check_least(extent: Any, least: int, message: str, error: type[Exception] = ValueError) -> None:
    """Raise an error if an extent is less than ``least``; for one by value, emit the check."""
    if is_value_size(extent):
        check_greater(extent, least - 1, message, error.__name__)
    elif extent < least:
        raise error(message)


def reduced_extent(extent: Any, by: int) -> Any:
    """Return an extent less ``by``, but not less than 0."""
    if not is_value_size(extent):
        return extent - by if extent >= by else 0
    if extent.sizes.is_positive(extent - (by - 1)):
        return extent - by
    return value_extent(as_traced(np.maximum(number_of(extent) - by, 0)), least=0, most=extent)


def is_inner(extent: Any) -> bool:
    """Return whether an extent by value has atoms that no frame around the current one defines."""
    return is_value_size(extent) and any(is_inner_atom(a) for atoms, _ in extent.terms for a in atoms)


def is_inner_atom(atom: int) -> bool:
    """Return whether no frame around the current one defines an atom of an extent."""
    frame = frame_of()
    count = sizes_of(frame).numbers[atom]
    return count.frame is not None and not any(count.frame is f for f in frame.outward)


def outer_bound(extent: Any, kept: Any = 0) -> Any:
    """Return an upper bound of an extent, of what is known in the current frame and as small as is known; None if there is none.
    ``kept``: an extent that stays in it, whose own bound does not count."""
    if not is_value_size(extent):
        return extent
    sizes, total = sizes_of(frame_of()), 0
    for atoms, factor in sizes.bound(extent.terms, kept):
        if not any(map(is_inner_atom, atoms)):
            term = factor
            for a in atoms:
                term = term * sizes.by_name[sizes.atom_name(a)]
            total = total + term
        elif factor > 0:
            return None
    return total


def largest(a: Any, b: Any) -> Any:
    """Return an upper bound of two upper bounds of a length, which may be extents by value; infinite if none is known."""
    if {type(a), type(b)} <= {int, float}:
        return max(a, b)
    if float in (type(a), type(b)):
        return math.inf
    factors = [factor for _, factor in added(terms_of(a), terms_of(b), -1)]
    return a if all(f >= 0 for f in factors) else b if all(f <= 0 for f in factors) else math.inf


def capacity_for(extents: Sequence[Any]) -> Any:
    """Return an upper bound of extents, of what is known in the current frame; None if there is none."""
    own = [outer_bound(n) for n in extents]
    if None in own:
        return None
    outer = [bound if is_inner(n) else n for n, bound in zip(extents, own, strict=True)]
    for bounds in (outer, own):
        capacity = functools.reduce(largest, bounds)
        if type(capacity) is not float:
            return capacity
    return sum(outer)


def most_growth(before: Any, after: Any) -> int | None:
    """Return an upper bound of the difference of two extents, at least 0; None if no fixed one is known."""
    if not is_value_size(before) and not is_value_size(after):
        return max(after - before, 0)
    after, before = of_one_trace(after, before)
    sizes = (after if is_value_size(after) else before).sizes
    growth = sizes.bound(added(terms_of(after), terms_of(before), -1), before)
    if any(atoms for atoms, _ in growth):
        return None
    return max(sum(factor for _, factor in growth), 0)


def check_greater(extent: Any, bound: int, message: str, error: str = "ValueError") -> None:
    """Emit the check that an extent by value is greater than an int, unless it is known to be."""
    if not extent.sizes.is_positive(extent - bound):
        greater = emit("gt", cast(number_of(extent), np.int64), literal(bound, np.int64))
        emit("check", greater, error=error, message=message)
