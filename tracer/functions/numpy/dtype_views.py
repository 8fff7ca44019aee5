"""``x.view(dtype)``: the bytes of an array reinterpreted as another dtype, as a view that can be written.

A complex number is viewed as a pair of floats, which has derivatives. Floats viewed as integers are bits, which have none:
floats built from the bits of other floats are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from pullback.ir import Instruction, Value
from pullback.ir.core.types import ArrayType
from pullback.tracer.arrays.arguments import remove_axes, reshaped, xp
from pullback.tracer.arrays.concretize import any_value
from pullback.tracer.arrays.frame import Frame, frame_of
from pullback.tracer.arrays.literals import element_of, refuse_dtype
from pullback.tracer.arrays.make import cast, emit, expand, strides_of
from pullback.tracer.arrays.strides import Strides
from pullback.tracer.arrays.tables import register_method
from pullback.tracer.arrays.traced import Recipe, TracedArray
from pullback.tracer.arrays.views import view
from pullback.tracer.user_code.errors import TraceError

OF_BITS = (
    "floats made of the bits of other floats, which have no derivative, or of ints that a loop carries; write np.abs, "
    "np.signbit, np.copysign, np.frexp, np.ldexp or np.nextafter, or view the bits outside the traced function"
)


@register_method("view")
def view_method(a: TracedArray, dtype: Any = None, type: Any = None) -> TracedArray:
    """Return a view of the array's memory as ``dtype``, or as its own dtype if None."""
    if a.weak:
        getattr(any_value(a), "view")  # noqa: B009 - raises Python's AttributeError
    if isinstance(dtype, _TYPE) and issubclass(dtype, np.ndarray):
        dtype, type = None, dtype
    if type not in (None, np.ndarray):
        raise TraceError(f"a view of a traced array as {type.__name__} is not supported; use the plain array")
    target = a.dtype if dtype is None else _target(dtype)
    if target == a.dtype:
        same = Recipe(take=lambda base: base, put=lambda base, new: new, strides=lambda strides: strides, key="view")
        return view(a, a, same)
    _check(a, target)
    source, shape = a.dtype, a.shape
    recipe = Recipe(
        take=lambda base: _reinterpreted(base, target),
        put=lambda base, new: reshaped(_reinterpreted(new, source), shape),
        strides=_strides(source, target),
        key=("view", target.str),
    )
    return view(_reinterpreted(a, target), a, recipe)


_TYPE = type


def _target(dtype: Any) -> np.dtype[Any]:
    target = np.dtype(dtype)
    refuse_dtype(target, "a view")
    if not target.isnative:
        raise TraceError(f"a view of a traced array as {target.str}, of the other byte order; write x.byteswap() and view that")
    return element_of(target).numpy


def _check(a: TracedArray, target: np.dtype[Any]) -> None:
    """Raise NumPy's errors for a view, and TraceError where the view is not supported."""
    old, new = a.dtype.itemsize, target.itemsize
    if target.kind == "b":
        raise TraceError("a view of a traced array as bools, whose bytes may be other than 0 and 1; write x != 0")
    if old == new:
        return
    if not a.ndim:
        raise ValueError("Changing the dtype of a 0d array is only supported if the itemsize is unchanged")
    if a.shape[-1] != 1 and a.size != 0:
        strides = strides_of(a)
        if strides is None:
            raise TraceError("a view with elements of another size of an array whose order in memory is not known; view x.copy()")
        if strides[-1] != 1:
            raise ValueError("To change to a dtype of a different size, the last axis must be contiguous")
    if new < old and old % new:
        raise ValueError("When changing to a smaller dtype, its size must be a divisor of the size of original dtype")
    if new > old and a.shape[-1] * old % new:
        of = "of the total size in bytes of the last axis of the array."
        raise ValueError(f"When changing to a larger dtype, its size must be a divisor {of}")


def _strides(source: np.dtype[Any], target: np.dtype[Any]) -> Callable[[Strides], Strides | None]:
    old, new = source.itemsize, target.itemsize
    return lambda strides: strides if old == new else (*(s * old // new for s in strides[:-1]), 1)


def _reinterpreted(x: TracedArray, target: np.dtype[Any]) -> TracedArray:
    """Reinterpret the bytes of each row along the last axis as ``target``."""
    if not x.ndim:
        return remove_axes(_reinterpreted(expand(x, (0,)), target), (0,))
    last = x.ndim - 1
    part = np.dtype(f"f{target.itemsize // 2}") if target.kind == "c" else target
    if x.dtype.kind == "c" and x.dtype != target:
        x = _interleaved([x.real, x.imag])
    if x.dtype not in (part, target):
        x = _with_bits(x, part)
    if target.kind == "c" and x.dtype.kind != "c":
        pairs = reshaped(x, (*x.shape[:last], x.shape[last] // 2, 2))
        x = emit("complex", pairs[..., 0], pairs[..., 1])
    return x


def _interleaved(parts: list[Any]) -> TracedArray:
    """Interleave the elements of several arrays along the last axis."""
    stacked = xp.stack(parts, axis=-1)
    return reshaped(stacked, (*stacked.shape[:-2], stacked.shape[-2] * len(parts)))


def _with_bits(x: TracedArray, target: np.dtype[Any]) -> TracedArray:
    """Reinterpret floats, ints or bools as ``target`` by their bits, low-order bytes first."""
    old, new = x.dtype.itemsize, target.itemsize
    bits: Any = (
        cast(x, np.uint8) if x.dtype.kind == "b" else x if x.dtype.kind == "u" else emit("bitcast", x, dtype=f"u{8 * old}")
    )
    if new < old:
        bits = _interleaved([cast(bits >> (8 * new * k), np.dtype(f"u{new}")) for k in range(old // new)])
    elif new > old:
        rows = reshaped(bits, (*bits.shape[:-1], bits.shape[-1] * old // new, new // old))
        widened: Any = cast(rows, np.dtype(f"u{new}"))
        bits = functools.reduce(lambda a, b: a | b, (widened[..., k] << (8 * old * k) for k in range(new // old)))
    if target.kind == "u":
        return cast(bits, target)
    if target.kind == "f" and _has_bits_of_floats(bits):
        raise TraceError(OF_BITS)
    result: TracedArray = emit("bitcast", bits, dtype=target)
    return result


def _has_bits_of_floats(x: TracedArray) -> bool:
    """Return whether integers may come from the bits of floats, searching the instructions that define them; True where a loop
    carries them."""
    return x.literal is None and _leads_to_bits(x.value, x.frame or frame_of(x))


def _leads_to_bits(value: Value, frame: Frame) -> bool:
    definitions = {result: i for i in frame.builder.instructions for result in i.results}
    seen, open_ = set[Value](), [value]
    while open_:
        value = open_.pop()
        if value in seen or not _is_integer(value):
            continue
        seen.add(value)
        definition = definitions.get(value)
        if definition is not None:
            if _bitcasts_float(definition):
                return True
            open_ += definition.operands
        elif frame.parent is not None:
            outer = frame.sources.get(value)
            if not isinstance(outer, tuple) or _leads_to_bits(*outer):
                return True
    return False


def _bitcasts_float(instruction: Instruction) -> bool:
    if instruction.op.name == "bitcast" and not _is_integer(instruction.operands[0]):
        return True
    return any(_bitcasts_float(i) for block in instruction.regions for i in block.instructions)


def _is_integer(value: Value) -> bool:
    return isinstance(value.type, ArrayType) and value.type.dtype.kind in "iub"
