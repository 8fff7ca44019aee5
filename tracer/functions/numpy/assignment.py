"""Writes into arrays that the traced function created.

A write emits ops for the array's new value and makes the ``TracedArray`` object stand for that value from then on. A write
into a view updates its base; writes into arguments and captured arrays are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import as_bool, choose_where, remove_axes, reshaped
from pullback.tracer.arrays.concretize import not_traced
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import (
    as_stored,
    as_traced,
    broadcast_into,
    broadcast_to,
    convert,
    expand,
    refuse_sequence,
    sample_of,
    static_array,
    stored,
    wrapping,
)
from pullback.tracer.arrays.promotion import shapes_text
from pullback.tracer.arrays.tables import implements, register_method
from pullback.tracer.arrays.traced import READONLY, TracedArray
from pullback.tracer.arrays.views import update
from pullback.tracer.functions.numpy.indexing import (
    IndexKey,
    is_static_mask,
    new_axes,
    plan_of,
    scattered,
    shape_with,
    with_basic,
)
from pullback.tracer.user_code.errors import TraceError


def setitem(x: TracedArray, key: Any, value: Any) -> None:
    """Perform ``x[key] = value`` for a key without a traced mask: ``x`` stands for the new value from then on."""
    if not (x.ndim or x.is_cell):
        raise TypeError(f"'{x.weak or f'numpy.{x.dtype.name}'}' object does not support item assignment")
    if isinstance(value, TracedArray) and value.base is x and value.seen == x.version and _is_part(value, key):
        return
    if not x.readonly and isinstance(value, list | tuple) and x.dtype.kind in "iu":
        value = as_stored(value, x.dtype)
    update(x, x if x.readonly else written(x, key, as_traced(value)), casting="unsafe")


def _is_part(value: TracedArray, key: Any) -> bool:
    """Return whether the view ``value`` is already the part of its base that ``key`` selects, as after ``x[1:] += 1``."""
    assert value.base is not None
    if value.recipe is not None and IndexKey(key) in (value.recipe.key, value.recipe.index):
        return True
    items = key if isinstance(key, tuple) else (key,)
    if not all(item is None or item is Ellipsis or isinstance(item, int | slice) for item in items):
        return False
    return value.recipe is not None and value.recipe.key == plan_of(value.base.shape, key)


def written(x: TracedArray, key: Any, value: TracedArray) -> TracedArray:
    """Return the value that ``x`` has after ``x[key] = value``."""
    if (isinstance(key, TracedArray) and key.dtype.kind == "b") or is_static_mask(key):
        masked = _masked(x, key, stored(value, x.dtype))
        if masked is not None:
            return masked
    plan = plan_of(x.shape, key)
    if value.weak == "complex" and x.dtype.kind in "iuf":
        kind = "float" if x.dtype.kind == "f" else "int"
        ending = "a string or a real number" if kind == "float" else "a string, a bytes-like object or a real number"
        raise TypeError(f"{kind}() argument must be {ending}, not 'complex'")
    value = stored(value, x.dtype, is_item=not plan.arrays)
    if not plan.arrays:
        shape = [a.count for a in plan.axes if not a.is_int]
        wanted = shape_with(shape, new_axes(plan))
        if not wanted and not any(k is Ellipsis for k in (key if isinstance(key, tuple) else (key,))):
            refuse_sequence(value, x.dtype)
        return with_basic(x, plan, broadcast_into(value, wanted))
    return scattered("scatter_set", x, plan, value)


def _masked(x: TracedArray, mask: Any, value: TracedArray) -> TracedArray | None:
    """Return ``x`` after ``x[mask] = value`` as an elementwise ``where``; None if a static mask with several values needs a
    scatter."""
    condition = as_traced(mask)
    if condition.shape != x.shape[: condition.ndim]:
        k = next((k for k, n in enumerate(condition.shape) if k >= x.ndim or x.shape[k] != n), 0)
        raise IndexError(
            f"boolean index did not match indexed array along axis {k}; size of axis is "
            f"{x.shape[k] if k < x.ndim else 0} but size of corresponding boolean axis is {condition.shape[k]}"
        )
    trailing = x.ndim - condition.ndim
    extra = value.ndim - trailing
    if extra > 0:
        if value.shape[:extra] != (1,) * extra:
            if isinstance(static_array(mask), np.ndarray):
                return None
            raise TraceError(
                f"a write of values of shape {value.shape} under a traced mask: which value goes where would depend on "
                "the mask; write np.where(mask, values_of_full_shape, x)"
            )
        value = remove_axes(value, range(extra))
    expanded = expand(condition, range(condition.ndim, x.ndim))
    return choose_where(broadcast_to(expanded, x.shape), broadcast_to(value, x.shape), x)


# functions that write


@register_method("fill")
def fill(x: TracedArray, value: Any) -> None:
    # A scalar is not filled, as in NumPy; a scalar on a device is a read-only array, for which update raises the error.
    if x.ndim or x.is_cell or x.readonly:
        refuse_sequence(value, x.dtype)
        update(x, as_stored(value, x.dtype, is_item=True) if not x.readonly else value, casting="unsafe")


@register_method("setflags")
def setflags(x: TracedArray, write: Any = None, align: Any = None, uic: Any = None) -> None:
    """Forbid or allow writes into an array. The array that a call returns can be written in any case."""
    if align is not None or uic is not None or not (x.ndim or x.is_cell) or x.frame is not frame_of() or x.argument is not None:
        raise TraceError("x.setflags is supported for write= of an array made in the same branch, loop or function")
    if write and x.readonly is READONLY and x.base is None:
        x.readonly = ""
    elif write and x.readonly:
        raise ValueError("cannot set WRITEABLE flag to True of this array")
    elif write is not None and not write:
        x.readonly = READONLY


@implements(np.copyto)
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    """Copy ``src`` into ``dst``, an array that the traced function created."""
    source = as_traced(src)
    if not isinstance(dst, TracedArray):
        raise not_traced("np.copyto into an array that the traced function did not make", "return the value instead")
    if not (dst.ndim or dst.is_cell or dst.readonly):
        raise TypeError(f"copyto() argument 1 must be a numpy.ndarray, not numpy.{dst.dtype.name}")
    if not source.weak and not np.can_cast(source.dtype, dst.dtype, casting):  # type: ignore[arg-type]
        description = "array data" if source.ndim else "scalar"
        raise TypeError(f"Cannot cast {description} from {source.dtype!r} to {dst.dtype!r} according to the rule {casting!r}")
    if source.weak == "complex" and casting == "unsafe":
        source = wrapping(source)
    if source.weak:
        np.copyto(np.empty((1,), dst.dtype), sample_of(source), casting)  # type: ignore[arg-type]  # raises NumPy's error
    extra = source.ndim - dst.ndim
    if extra > 0 and set(source.shape[:extra]) == {1}:
        source = reshaped(source, source.shape[extra:])
    source = _broadcast_source(convert(source, dst.dtype), dst.shape, "input array")
    if where is not True:
        source = choose_where(_broadcast_source(as_bool(as_traced(where)), dst.shape, "where mask"), source, dst)
    update(dst, source, "unsafe")


def _broadcast_source(x: TracedArray, shape: Sequence[int], description: str) -> TracedArray:
    """Broadcast ``x`` to ``shape``; raises ValueError in the words of NumPy's copies."""
    try:
        return broadcast_to(x, shape)
    except ValueError:
        source, wanted = shapes_text([x.shape]), shapes_text([tuple(shape)])
        raise ValueError(f"could not broadcast {description} from shape {source} into shape {wanted}") from None
