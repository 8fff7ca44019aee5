"""Index ops read and write at positions that are values, or at a regular part of a buffer.

Indices are int64, in range (a preceding ``check`` ensures this) or negative, counting from the end. ``gather`` takes one index
array for each axis in ``axes``, all of one shape; that shape leads the result, the other axes follow.

``in_range``, which may be absent, lists the axes whose indices are proved to be neither negative nor beyond the end, so that no
code is emitted that counts them from the end or clamps them. A rewrite may drop it. Batching does: a mapped loop or branch
executes iterations and sides for rows that do not take them, where the proof does not hold. Evaluation raises IndexError if the
proof is wrong, as in a call with ``debug=True``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import ZERO, Contribution, Into, Op, Region, Same, with_leading_axis
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, ArrayType, Extent, Shape, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import (
    check_roll_axes,
    offsets_into_literal,
    roll_source,
    rolled,
    same_part,
    settle_part,
    slices,
)


def _rest(x: ArrayType, axes: Sequence[int]) -> Shape:
    return tuple(e for k, e in enumerate(x.shape) if k not in axes)


def _check_indices(indices: Sequence[ArrayType], axes: Sequence[int], x: ArrayType, same: Same) -> Shape:
    if len(indices) != len(axes) or not axes or list(axes) != sorted(set(axes)) or not 0 <= axes[0] <= axes[-1] < x.rank:
        raise TypeError("one index array an axis, axes ascending")
    for index in indices:
        if index.dtype is not I64 or index.rank != indices[0].rank:
            raise TypeError("indices are i64 arrays of one shape")
        for e, f in zip(index.shape, indices[0].shape, strict=True):
            same(e, f)
    return indices[0].shape


def _check_proved(params: Mapping[str, Any]) -> None:
    proved = list(params.get("in_range", ()))
    if "in_range" in params and (not proved or proved != sorted(set(proved)) or not set(proved) <= set(params["axes"])):
        raise TypeError("in_range lists some of the axes, ascending")


def _refuse_wrong_proof(indices: Sequence[Any], extents: Sequence[int], params: Mapping[str, Any]) -> None:
    """Raise IndexError if an index is out of range whose axis is in ``in_range``."""
    for axis, index in zip(params["axes"], indices, strict=True):
        if axis in params.get("in_range", ()) and np.any((index < 0) | (index >= extents[axis])):
            raise IndexError(f"an index that was proved to be in range is not, for axis {axis} with size {extents[axis]}")


@dataclass(frozen=True, eq=False, kw_only=True)
class Gather(Op):
    """The elements of x at indices. Operands: x, then one index array for each of ``axes``."""

    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        x, *indices = [t for t in types if isinstance(t, ArrayType)]
        shape = _check_indices(indices, params["axes"], x, same)
        _check_proved(params)
        return (x.with_shape(shape + _rest(x, params["axes"])),)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        x, *indices = operands
        axes = tuple(params["axes"])
        _refuse_wrong_proof(indices, x.shape, params)
        return (np.moveaxis(x, axes, range(len(axes)))[tuple(indices)],)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Extent) -> tuple[Value, ...]:
        (x, *indices), axes = operands, tuple(params["axes"])
        if not batched[0]:
            return b.emit(self, (x, *with_leading_axis(b, indices, batched[1:], size)), {"axes": axes})
        if not any(batched[1:]):
            gathered = b.gather(x, *indices, axes=tuple(a + 1 for a in axes))
            count = indices[0].type.rank
            return (b.transpose(gathered, perm=(count, *range(count), *range(count + 1, gathered.type.rank))),)
        return b.emit(self, (x, *_with_rows(b, indices, batched[1:], size)), _rows_first(axes))


class RollBy(Gather):
    """A roll by a number of positions that is a value, from 0 to the extent of the last of ``axes``. Operands: x, the number.

    The elements move to higher indices or, if ``backward``, to lower ones, along the axes as if they were one.
    """

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        x, count = types
        if not isinstance(x, ArrayType) or count != ArrayType(I64):
            raise TypeError("takes an array and an i64 scalar")
        check_roll_axes(x, params["axes"])
        return (x,)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        x, count = operands
        by = min(max(int(count), 0), x.shape[params["axes"][-1]])
        return (rolled(x, params["axes"], -by if params["backward"] else by),)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Extent) -> tuple[Value, ...]:
        """Emit a roll of each row; by numbers that differ, as a gather from the rows."""
        (x, count), axes = operands, tuple(params["axes"])
        (x,) = with_leading_axis(b, (x,), batched[:1], size)
        if not batched[1]:
            return b.emit(self, (x, count), {**params, "axes": tuple(a + 1 for a in axes)})
        shape = x.type.shape
        source = [b.iota(axis=k, shape=shape, dtype=I64) for k in range(len(shape))]
        extents = [b.spread(b.count(shape=(e,)), shape) for e in shape]
        by = b.broadcast(count, axes=tuple(range(1, len(shape))), shape=shape)
        source = roll_source(b, source, extents, [a + 1 for a in axes], by, params["backward"])
        return (b.gather(x, *source, axes=tuple(range(len(shape)))),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Scatter(Op):
    """The base with values written at indices. Operands: base, one index array for each of ``axes``, values of the shape that
    gather would give.

    ``accumulate``: values are added, repeated indices included, in index order; otherwise the last one wins.
    """

    accumulate: bool
    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        base, *indices, values = [t for t in types if isinstance(t, ArrayType)]
        shape = _check_indices(indices, params["axes"], base, same) + _rest(base, params["axes"])
        _check_proved(params)
        if values.dtype is not base.dtype or values.rank != len(shape):
            raise TypeError(f"values must be {base.with_shape(shape)}")
        for e, f in zip(values.shape, shape, strict=True):
            same(e, f)
        return (base,)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        base, *indices, values = operands
        axes = tuple(params["axes"])
        _refuse_wrong_proof(indices, base.shape, params)
        out = np.array(base)
        moved = np.moveaxis(out, axes, range(len(axes)))
        if self.accumulate:
            with np.errstate(all="ignore"):
                np.add.at(moved, tuple(indices), values)
        else:
            moved[tuple(indices)] = values
        return (out,)

    def batch(self, b: Any, operands: Any, batched: Any, params: Mapping[str, Any], size: Extent) -> tuple[Value, ...]:
        (base, *indices, values), axes = operands, tuple(params["axes"])
        base, values = with_leading_axis(b, (base, values), (batched[0], batched[-1]), size)
        if any(batched[1:-1]):
            operands = (base, *_with_rows(b, indices, batched[1:-1], size), values)
            return b.emit(self, operands, {**_leading_part(params), **_rows_first(axes)})
        count = indices[0].type.rank
        values = b.transpose(values, perm=(*range(1, count + 1), 0, *range(count + 1, values.type.rank)))
        operands = (base, *indices, values)
        return b.emit(self, operands, {**_leading_part(params), "axes": tuple(a + 1 for a in axes)})


class ScatterPart(Scatter):
    """A ``Scatter`` into a regular part of the axes that are not indexed. ``start`` and ``step`` have an entry for each axis of
    the base, None and 1 for axes that are indexed or written in full."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        base, *indices, values = [t for t in types if isinstance(t, ArrayType)]
        axes, start, step = params["axes"], params["start"], params["step"]
        rank = len(_check_indices(indices, axes, base, same))
        _check_proved(params)
        if values.dtype is not base.dtype or values.rank != rank + base.rank - len(axes):
            raise TypeError("the values have the base's dtype, the axes of the indices and the axes that are not indexed")
        if any(start[a] is not None or step[a] != 1 for a in axes):
            raise TypeError("an indexed axis has no start and no step")
        for e, f in zip(values.shape, indices[0].shape, strict=False):
            same(e, f)
        kept = [k for k in range(base.rank) if k not in axes]
        part = [tuple(entries[k] for k in kept) for entries in (base.shape, start, step)]
        same_part(values.shape[rank:], part[0], part[1], part[2], same)
        return (base,)

    def settle(self, types: Sequence[Type], params: dict[str, Any]) -> dict[str, Any]:
        base, *indices, values = types
        axes, rank = params["axes"], indices[0].rank
        if len(params["start"]) != base.rank or values.rank != rank + base.rank - len(axes):
            return params
        counts = iter(values.shape[rank:])
        inner = tuple(e if k in axes else next(counts) for k, e in enumerate(base.shape))
        return settle_part(inner, base.shape, params)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        base, *indices, values = operands
        axes, rank = params["axes"], indices[0].ndim
        out = np.array(base)
        counts = list(values.shape[rank:])
        counts = [out.shape[k] if k in axes else counts.pop(0) for k in range(out.ndim)]
        part = out[slices(params["start"], params["step"], counts)]
        part[...] = super().evaluate((part, *indices, values), params, types)[0]
        return (out,)


class ScatterSum(Op):
    """A ``Scatter`` that accumulates onto zeros of ``shape``, along the leading axes (``axes``). It replaces a ``Scatter``
    before kernels are built."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        *indices, values = [t for t in types if isinstance(t, ArrayType)]
        result = values.with_shape(tuple(params["shape"]))
        shape = _check_indices(indices, params["axes"], result, same) + _rest(result, params["axes"])
        if values.rank != len(shape) or tuple(params["axes"]) != tuple(range(len(indices))):
            raise TypeError(f"values must be {values.with_shape(shape)}, axes the leading ones")
        for e, f in zip(values.shape, shape, strict=True):
            same(e, f)
        return (result,)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        *indices, values = operands
        out = np.zeros(params["shape"], values.dtype)
        with np.errstate(all="ignore"):
            np.add.at(out, tuple(indices), values)
        return (out,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Place(Op):
    """The base with a value added to, or replacing, its part at ``start`` with ``step``. Operands: base, value."""

    accumulate: bool
    linear: bool = True

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        base, value = types
        if not isinstance(base, ArrayType) or not isinstance(value, ArrayType) or base.dtype is not value.dtype:
            raise TypeError("takes two arrays of one dtype")
        same_part(value.shape, base.shape, params["start"], params["step"], same)
        return (base,)

    def settle(self, types: Sequence[Type], params: dict[str, Any]) -> dict[str, Any]:
        base, value = types
        return settle_part(value.shape, base.shape, params)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        base, value = operands
        out = np.array(base)
        part = slices(params["start"], params["step"], value.shape)
        with np.errstate(all="ignore"):
            out[part] = out[part] + value if self.accumulate else value
        return (out,)


def _with_rows(b: Any, indices: Sequence[Value], batched: Sequence[bool], size: Extent) -> list[Value]:
    """Return ``indices`` with a leading batch axis, preceded by the index along that axis."""
    batched_indices = with_leading_axis(b, indices, batched, size)
    return [b.iota(shape=batched_indices[0].type.shape, axis=0, dtype=I64), *batched_indices]


def _leading_part(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of a regular part of an array with a leading batch axis; none if the array is written in full."""
    return {"start": (None, *params["start"]), "step": (1, *params["step"])} if "start" in params else {}


def part_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the params of an op on elements of an array that say which elements these are."""
    return {name: tuple(params[name]) for name in ("axes", "in_range", "start", "step") if name in params}


def proof(axes: Sequence[int]) -> dict[str, Any]:
    """Return the params that say that the indices of ``axes`` are in range."""
    return {"in_range": tuple(sorted(axes))} if axes else {}


def gather_written(b: Any, x: Value, indices: Sequence[Value], like: Value, params: Mapping[str, Any]) -> Value:
    """Emit the elements of ``x`` that a scatter of values of the shape of ``like`` writes."""
    gathered: Value = b.gather(x, *indices, axes=params["axes"], **proof(params.get("in_range", ())))
    if "start" not in params:
        return gathered
    rest, rank = [k for k in range(x.type.rank) if k not in params["axes"]], indices[0].type.rank
    start = (*[None] * rank, *(params["start"][k] for k in rest))
    step = (*[1] * rank, *(params["step"][k] for k in rest))
    part: Value = b.slice(gathered, start=start, step=step, shape=like.type.shape)
    return part


def _rows_first(axes: Sequence[int]) -> dict[str, Any]:
    return {"axes": (0, *(a + 1 for a in axes))}


def _gather_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    x, *indices = inputs

    def add(base: Any) -> Any:
        return b.scatter_add(base, *indices, cts[0], axes=params["axes"], **proof(params.get("in_range", ())))

    return [Into(add=add, dense=lambda: add(b.zeros_like(x))), *[ZERO] * len(indices)]


def _scatter_add_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    _, *indices, written = inputs
    values = gather_written(b, cts[0], indices, written, params) if wants[-1] else ZERO
    return [cts[0], *[ZERO] * len(indices), values]


def _scatter_set_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    """Where several values are written to one element, only the last one gets a cotangent."""
    base, *indices, values = inputs
    contributions: list[Contribution] = [ZERO] * len(inputs)
    # The cotangent is read before it is overwritten, so that no copy is made.
    if wants[-1]:
        ct = gather_written(b, cts[0], indices, values, params)
        if indices[0].type.rank:
            is_last = _are_last(b, base, indices, params["axes"])
            rest = tuple(range(is_last.type.rank, ct.type.rank))
            spread = b.broadcast(is_last, axes=rest, shape=ct.type.shape) if rest else is_last
            ct = b.select(spread, ct, b.zeros_like(ct))
        contributions[-1] = ct
    if wants[0]:
        contributions[0] = b.emit(op, (cts[0], *indices, b.zeros_like(values)), part_params(params))[0]
    return contributions


MOST_COMPARED = 16
"""Largest number of indices of which each is compared with all others."""


def _are_last(b: Any, base: Value, indices: Sequence[Value], axes: Sequence[int]) -> Value:
    """Emit, for each position, whether no later position has equal indices."""
    shape = indices[0].type.shape
    count = math.prod(e for e in shape if isinstance(e, int))
    if all(isinstance(e, int) for e in shape) and count <= MOST_COMPARED:
        return _differ_from_later(b, base, indices, axes, count)
    is_last: Value | None = None
    every = tuple(range(len(axes)))
    for axis in range(len(shape)):
        position = b.iota(shape=shape, axis=axis, dtype=I64)
        written = b.full(0, ArrayType(I64, tuple(base.type.shape[a] for a in axes)))
        last = b.gather(b.scatter_set(written, *indices, position, axes=every), *indices, axes=every)
        is_here = b.eq(last, position)
        is_last = is_here if is_last is None else b.bitand(is_last, is_here)
    assert is_last is not None
    return is_last


def _differ_from_later(b: Any, base: Value, indices: Sequence[Value], axes: Sequence[int], count: int) -> Value:
    """Emit whether no later position has equal indices, by comparing each with all others."""
    pairs, shape = (count, count), indices[0].type.shape
    equal = b.lt(b.iota(shape=pairs, axis=0, dtype=I64), b.iota(shape=pairs, axis=1, dtype=I64))
    for index, axis in zip(indices, axes, strict=True):
        from_end = b.add(index, b.spread(b.count(shape=(base.type.shape[axis],)), shape))
        wrapped = b.select(b.lt(index, b.zeros_like(index)), from_end, index)
        flat = b.reshape(wrapped, shape=(count,)) if len(shape) != 1 else wrapped
        first, later = (b.broadcast(flat, axes=(k,), shape=pairs) for k in (1, 0))
        equal = b.bitand(equal, b.eq(first, later))
    is_last = b.bitnot(b.any(equal, axes=(1,)))
    result: Value = b.reshape(is_last, shape=shape) if len(shape) != 1 else is_last
    return result


def _roll_by_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (x,) = b.emit(op, (cts[0], inputs[1]), {**params, "backward": not params["backward"]})
    return [x, ZERO]


def _slice_add_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    value = b.slice(cts[0], start=params["start"], step=params["step"], shape=inputs[1].type.shape) if wants[1] else ZERO
    return [cts[0], value]


def _slice_set_rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    part = {"start": params["start"], "step": params["step"]}
    value = b.slice(cts[0], **part, shape=inputs[1].type.shape) if wants[1] else ZERO
    return [b.slice_set(cts[0], b.zeros_like(inputs[1]), **part) if wants[0] else ZERO, value]


gather = Gather(name="gather", pullback=_gather_rule)
roll_by = RollBy(name="roll_by", pullback=_roll_by_rule)
scatter_add = Scatter(name="scatter_add", accumulate=True, pullback=_scatter_add_rule)
scatter_set = Scatter(name="scatter_set", accumulate=False, pullback=_scatter_set_rule)
scatter_add_part = ScatterPart(
    name="scatter_add_part", accumulate=True, extents=("start",), literal=offsets_into_literal, pullback=_scatter_add_rule
)  # fmt: skip
scatter_set_part = ScatterPart(
    name="scatter_set_part", accumulate=False, extents=("start",), literal=offsets_into_literal, pullback=_scatter_set_rule
)  # fmt: skip
slice_add = Place(name="slice_add", accumulate=True, extents=("start",), literal=offsets_into_literal, pullback=_slice_add_rule)
slice_set = Place(name="slice_set", accumulate=False, extents=("start",), literal=offsets_into_literal, pullback=_slice_set_rule)
scatter_sum = ScatterSum(
    name="scatter_sum", typed=("shape",), extents=("shape",), nondifferentiable="derivatives are taken before it is made"
)
