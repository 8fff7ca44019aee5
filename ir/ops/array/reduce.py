"""Reductions over axes. ``combine`` names the elementwise op that joins two partial results, ``identity`` gives the result of
an empty reduction. Compiled reductions are trees whose shape depends on the extents only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, ArrayType, DType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import each, no
from pullback.ir.ops.elementwise.semantics import is_float


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduce(Op):
    """A reduction. Param ``axes``: sorted, non-negative. With ``combine`` "argmax" or "argmin" the accumulator is a value and
    its first position."""

    combine: str
    identity: Callable[[DType], Any]
    kinds: str = "ifu"

    @property
    def gives_position(self) -> bool:
        return self.combine.startswith("arg")

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (x,) = types
        axes = params["axes"]
        if not isinstance(x, ArrayType) or x.dtype.kind not in self.kinds:
            raise TypeError(f"is not defined for {x}")
        if any(not 0 <= a < x.rank for a in axes) or list(axes) != sorted(set(axes)):
            raise TypeError(f"axes {list(axes)} are not axes of {x}")
        if self.gives_position and len(axes) != 1:
            raise TypeError("takes one axis")
        shape = tuple(e for k, e in enumerate(x.shape) if k not in axes)
        return (ArrayType(I64 if self.gives_position else x.dtype, shape),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):
            result = self.function(operands[0], tuple(params["axes"]))
        return (np.asarray(result, types[0].dtype.numpy),)


def _spread(b: Any, x: Value, like: Value, axes: Sequence[int]) -> Value:
    result: Value = b.broadcast(x, axes=tuple(axes), shape=like.type.shape) if axes else x
    return result


def _sum_rule(b: Any, ct: Value, out: Value, x: Value, axes: Sequence[int]) -> Value:
    return _spread(b, ct, x, axes)


def _prod_rule(b: Any, ct: Value, out: Value, x: Value, axes: Sequence[int]) -> Value:
    """Return ct times the product of all other elements, as prefix and suffix products, so that zeros need no division."""
    one = b.full(1, x.type)
    shape = x.type.shape
    others = one
    for position, axis in enumerate(axes):
        inner = x
        for done in axes[:position]:
            inner = _spread(b, b.prod(inner, axes=(done,)), x, (done,))
        others = b.mul(others, _others(b, inner, axis, shape))
    return b.mul(_spread(b, ct, x, axes), others)


def _others(b: Any, x: Value, axis: int, shape: Any) -> Value:
    """Return, for each position along ``axis``, the product of the elements before it times that of the elements after it."""
    position = b.iota(shape=shape, axis=axis, dtype=I64)
    first = b.eq(position, b.zeros_like(position))
    start = b.cast(first, dtype=x.type.dtype)
    before = b.linear_recurrence(b.shift(x, axis=axis, offset=1), start, axis=axis, reverse=False)
    mirrored = b.shift(b.flip(x, axes=(axis,)), axis=axis, offset=1)
    after = b.linear_recurrence(mirrored, start, axis=axis, reverse=False)
    result: Value = b.mul(before, b.flip(after, axes=(axis,)))
    return result


def _extreme_rule(b: Any, ct: Value, out: Value, x: Value, axes: Sequence[int]) -> Value:
    """Return the cotangent of x: elements that tie for the extreme share ``ct`` equally."""
    is_best = b.eq(x, _spread(b, out, x, axes))
    count = b.sum(b.cast(is_best, dtype=x.type.dtype), axes=tuple(axes))
    result: Value = b.select(is_best, _spread(b, b.div(ct, count), x, axes), b.zeros_like(x))
    return result


def _max(x: Any, axes: Any) -> Any:
    if x.dtype.kind == "c":
        return np.max(x, axis=axes)
    out = np.max(x, axis=axes, initial=_lowest(x)) if not is_float(x) else np.max(x, axis=axes, initial=-np.inf)
    return out if not is_float(x) else np.where(out == 0, np.where(np.any((x == 0) & ~np.signbit(x), axis=axes), 0.0, -0.0), out)


def _min(x: Any, axes: Any) -> Any:
    if x.dtype.kind == "c":
        return np.min(x, axis=axes)
    out = np.min(x, axis=axes, initial=_highest(x)) if not is_float(x) else np.min(x, axis=axes, initial=np.inf)
    return out if not is_float(x) else np.where(out == 0, np.where(np.any((x == 0) & np.signbit(x), axis=axes), -0.0, 0.0), out)


def _lowest(x: Any) -> Any:
    return False if x.dtype.kind == "b" else np.iinfo(x.dtype).min


def _highest(x: Any) -> Any:
    return True if x.dtype.kind == "b" else np.iinfo(x.dtype).max


def lowest(dtype: DType) -> Any:
    """Return the identity of a maximum."""
    return float("-inf") if dtype.is_float else False if dtype.is_bool else int(np.iinfo(dtype.numpy).min)


def highest(dtype: DType) -> Any:
    """Return the identity of a minimum."""
    return float("inf") if dtype.is_float else True if dtype.is_bool else int(np.iinfo(dtype.numpy).max)


def _keep_dtype(function: Any) -> Any:
    return lambda x, axes: function(x, axis=axes, dtype=x.dtype)


sum_ = Reduce(
    name="sum",
    reference=_keep_dtype(np.sum),
    combine="add",
    identity=lambda d: 0,
    kinds="ifuc",
    linear=True,
    pullback=each(_sum_rule),
)
prod = Reduce(
    name="prod",
    reference=_keep_dtype(np.prod),
    combine="mul",
    identity=lambda d: 1,
    kinds="ifuc",
    pullback=each(_prod_rule),
)
max_ = Reduce(name="max", reference=_max, combine="maximum", identity=lowest, kinds="bifuc", pullback=each(_extreme_rule))
min_ = Reduce(name="min", reference=_min, combine="minimum", identity=highest, kinds="bifuc", pullback=each(_extreme_rule))
any_ = Reduce(
    name="any",
    reference=lambda x, axes: np.any(x, axis=axes),
    combine="bitor",
    identity=lambda d: False,
    kinds="b",
    pullback=each(no),
)
all_ = Reduce(
    name="all",
    reference=lambda x, axes: np.all(x, axis=axes),
    combine="bitand",
    identity=lambda d: True,
    kinds="b",
    pullback=each(no),
)
argmax = Reduce(
    name="argmax", reference=lambda x, axes: np.argmax(x, axis=axes[0]), combine="argmax", identity=lowest, kinds="bifuc",
    nondifferentiable="a position is an integer",
)  # fmt: skip
argmin = Reduce(
    name="argmin", reference=lambda x, axes: np.argmin(x, axis=axes[0]), combine="argmin", identity=highest, kinds="bifuc",
    nondifferentiable="a position is an integer",
)  # fmt: skip
