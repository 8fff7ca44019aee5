"""Dask's collections as arguments of compiled functions: the call becomes tasks of a graph, and its result a lazy collection.

Chunks are blocks of rows. What is known before, the chunks and their lengths, decides the tasks; nothing is computed until the
result is. A column of a dataframe has chunks of unknown length: the program must then be the same for any length.
"""

from __future__ import annotations

import itertools
import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.delayed import Delayed

from pullback.compiled.function import Jitted
from pullback.distributed.blocks import rows_between
from pullback.distributed.partials import Layout, count_of, layout_of
from pullback.distributed.plan import Plan, Rows, plan_of, split_of
from pullback.distributed.programs import BlockProgram
from pullback.distributed.tasks import BlockTask, combine_blocks, compute_chunk, kept_result, reduced_blocks
from pullback.ir import Function
from pullback.ir.passes.rows.split import FIRST, BlockPart, Part
from pullback.ir.shapes.extents import abstract
from pullback.ir.text import canonical
from pullback.tracer import Signature, TraceError, signature

FAN_IN = 64
"""The number of partial results that one task combines, as on a cluster (``cluster.FAN_IN``)."""
MOST_SHAPES = 16
"""The largest number of shapes of chunks for which an elementwise function is traced, a few milliseconds each."""
UNKNOWN = (61, 1009, 1_000_003)
"""The numbers of rows with which a function of chunks of unknown lengths is traced: if the programs are the same for numbers of
three size classes without common factors, they serve all."""


def is_lazy(x: Any) -> bool:
    """Return whether a value is a collection of Dask."""
    return dask.is_dask_collection(x)


def call(function: Jitted[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the lazy result of a call with Dask's collections among the arguments; NotImplemented if there are none.

    Raises TraceError for programs that chunks cannot be computed by, ValueError for chunks that do not match.
    """
    leaves: list[Any] = []
    _mapped((tuple(args), dict(kwargs)), leaves.append)
    lazy = [x for x in leaves if is_lazy(x)]
    if not lazy:
        return NotImplemented
    if any(not _is_array(x) for x in lazy):
        return dask.delayed(function, pure=False)(*args, **kwargs)
    args, kwargs = _mapped((tuple(args), dict(kwargs)), lambda x: _as_array(x) if is_lazy(x) else x)
    is_grid = any(len(_chunked_axes(_as_array(x))) > 1 for x in lazy)
    try:
        return (_Grid if is_grid else _Call)(function, args, kwargs).result()
    except TraceError as error:
        error.hint = f"{error.hint}; or pass x.compute()"
        raise


def _is_array(x: Any) -> bool:
    return isinstance(x, da.Array) or (not isinstance(x, Delayed) and hasattr(x, "to_dask_array"))


def _as_array(x: Any) -> da.Array:
    return x if isinstance(x, da.Array) else x.to_dask_array()


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a structure of containers with ``change`` applied to everything else."""
    if type(value) is dict:
        return {k: _mapped(v, change) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_mapped(v, change) for v in value])
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_mapped(v, change) for v in value])
    return change(value)


def _chunked_axes(x: da.Array) -> list[int]:
    """Return the axes along which an array has several chunks, or chunks of unknown length."""
    return [k for k, lengths in enumerate(x.chunks) if len(lengths) > 1 or any(map(math.isnan, lengths))]


class _Call:
    """One call with Dask arrays among its arguments. ``chunks``: the lengths of the chunks along the rows; one chunk if no array
    has several."""

    def __init__(self, function: Jitted[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.function, self.token = function, secrets.token_hex(8)
        self.arrays: list[da.Array] = []
        _mapped((args, kwargs), lambda x: self.arrays.append(x) if isinstance(x, da.Array) else None)
        self.axes = [next(iter(_chunked_axes(x)), None) for x in self.arrays]
        self.chunks = self._matched_chunks()
        self.is_known = not any(math.isnan(n) for n in self.chunks)
        counts = [int(sum(self.chunks))] if self.is_known else list(UNKNOWN)
        advice = "the number of rows, which is not known; pass x.to_dask_array(lengths=True), which computes the chunks' lengths"
        try:
            plans = [self._plan(args, kwargs, count) for count in counts]
        except (ValueError, IndexError) as error:
            if self.is_known:
                raise
            raise TraceError(f"{function.__name__} fails, or depends on {advice}. For {UNKNOWN[0]} rows: {error}") from error
        self.plan, self.leaves, self.values, self.by_leaf = plans[0]
        texts = {tuple(program.text for program in plan.programs.values()) for plan, *_ in plans}
        if len(texts) > 1 or (not self.is_known and any(FIRST in part.inputs for part in self.plan.programs)):
            raise TraceError(f"{function.__name__} depends on {advice}")

    def _matched_chunks(self) -> tuple[float, ...]:
        """Return the lengths of the chunks, which are the same for all arrays. Raises TraceError and ValueError."""
        title = self.function.__name__
        lengths: dict[tuple[float, ...], None] = {}
        for x, axis in zip(self.arrays, self.axes, strict=True):
            if axis is not None:
                lengths[tuple(x.chunks[axis])] = None
        first = next(iter(lengths), (1,))
        for other in lengths:
            differs = (a != b and not (math.isnan(a) or math.isnan(b)) for a, b in zip(first, other))
            if len(other) != len(first) or any(differs):
                raise ValueError(f"{title} gets Dask arrays with chunks {first} and {other}, which do not match; rechunk one")
        return next((each for each in lengths if any(map(math.isnan, each))), first)

    def _plan(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], count: int
    ) -> tuple[Plan, list[Any], list[Any], dict[int, Any]]:
        """Return the plan for a number of rows, the leaves of the call, the values of the parameters, and the arrays by leaf."""
        stand_ins = iter([_stand_in(x, axis, count) for x, axis in zip(self.arrays, self.axes, strict=True)])
        used: list[Any] = []

        def replaced(x: Any) -> Any:
            if not isinstance(x, da.Array):
                return x
            used.append(next(stand_ins))
            return used[-1]

        args, kwargs = _mapped((args, kwargs), replaced)
        call = signature(self.function._parameters, args, kwargs)
        leaves = list(call.leaves)
        positions = [next(k for k, leaf in enumerate(leaves) if leaf is x) for x in used]
        axes = {k: axis for k, axis in zip(positions, self.axes, strict=True) if axis is not None}
        titles = {k: f"argument {k}" for k in range(len(leaves))}
        rows = Rows(axes=axes, count=count, titles=titles, are_all=False, is_known=self.is_known)
        plan = plan_of(self.function, call, args, kwargs, rows)
        values = plan.arguments(leaves)
        if values is None:
            raise TraceError(f"{self.function.__name__} reads a value from outside that is another one at each read")
        return plan, leaves, values, dict(zip(positions, self.arrays, strict=True))

    def result(self) -> Any:
        """Return the result, with Dask arrays for what depends on Dask arrays."""
        slots: dict[int, Any] = {k: self._whole(k, v) for k, v in enumerate(self.values)}
        for outer, block in self.plan.split.rounds:
            if outer is not None:
                self._run_outer(outer, slots)
            if block is not None:
                self._run_blocks(block, slots)
        results = [
            slots[k] if isinstance(slots[k], da.Array) or not is_lazy(slots[k]) else _lazy_array(slots[k], t)
            for k, t in zip(self.plan.split.results, self.plan.result_types, strict=True)
        ]
        leaves, values = ([self.by_leaf.get(k, x) for k, x in enumerate(each)] for each in (self.leaves, self.values))
        return self.plan.result(results, leaves, values)

    def _whole(self, k: int, value: Any) -> Any:
        """Return the value of a parameter without rows: a delayed array of its one chunk."""
        return self.by_leaf[k].to_delayed().ravel()[0] if k in self.by_leaf and k not in self.plan.axes else value

    def _name(self, what: str, *numbers: int) -> str:
        return "-".join([f"{self.plan.name}{what}", self.token, *map(str, numbers)])

    def _run_outer(self, part: Part, slots: dict[int, Any]) -> None:
        """Compute a part without rows: now if it depends on no Dask array, else as a task."""
        values = [slots[k] for k in part.inputs]
        program = self.plan.program(part)
        if not any(map(is_lazy, values)):
            slots.update(zip(part.outputs, program(0, values), strict=True))
            return
        task = dask.delayed(_run, pure=True)(program, values, dask_key_name=self._name("-once", *part.outputs[:1]))
        slots.update((slot, task[k]) for k, slot in enumerate(part.outputs))

    def _run_blocks(self, part: BlockPart, slots: dict[int, Any]) -> None:
        """Add a task for each chunk, and those that reduce partial results."""
        sent = [k for k in part.inputs if k in self.plan.axes]
        values = [k for k in part.inputs if k not in self.plan.axes and k != FIRST]
        sources = [
            ("first", 0) if k == FIRST else ("sent", sent.index(k)) if k in sent else ("value", values.index(k))
            for k in part.inputs
        ]
        task = dask.delayed(BlockTask(self.plan.program(part), sources, count_of(part)), pure=True)
        shared = dask.delayed([slots[k] for k in values])
        axes = [self.plan.axes[k] for k in sent]
        chunks = [self._chunks_of(k, slots[k]) for k in sent]
        starts = np.cumsum([0, *self.chunks]).tolist() if self.is_known else [0] * len(self.chunks)
        compute = dask.delayed(compute_chunk, pure=True)
        slot_name = part.outputs[0] if part.outputs else 0
        results = [
            compute(starts[j], [each[j] for each in chunks], axes, task, shared, dask_key_name=self._name("", slot_name, j))
            for j in range(len(self.chunks))
        ]
        slot = iter(part.outputs)
        if part.reductions:
            reduced = self._reduced(results, layout_of(part), slot_name)
            for k, (_, count) in enumerate(part.reductions):
                slots.update((next(slot), reduced[k][j]) for j in range(count))
        read = dask.delayed(kept_result, pure=True)
        first = len(part.outputs) - len(part.kept)
        for k, axis in enumerate(part.kept):
            t = part.function.results[first + k].type
            blocks = []
            for result, length in zip(results, self.chunks, strict=True):
                shape = tuple(e if isinstance(e, int) else length for e in t.shape)
                blocks.append(da.from_delayed(read(result, k), shape, t.dtype.numpy))
            slots[next(slot)] = da.concatenate(blocks, axis, allow_unknown_chunksizes=True) if len(blocks) > 1 else blocks[0]

    def _chunks_of(self, k: int, value: Any) -> list[Any]:
        """Return the chunks of a parameter with rows, delayed; of an array of NumPy its rows."""
        if k in self.by_leaf:
            return list(self.by_leaf[k].to_delayed().ravel())
        if not self.is_known:
            label = self.plan.trace.labels[k]
            raise TraceError(f"{label} has rows, as chunks of unknown length have; pass it as a Dask array too")
        bounds = np.cumsum([0, *self.chunks]).astype(int).tolist()
        return [rows_between(value, self.plan.axes[k], a, b) for a, b in itertools.pairwise(bounds)]

    def _reduced(self, results: list[Any], layout: Layout, slot_name: int) -> Any:
        """Return the delayed partial results of all chunks, combined up the tree."""
        combine, level = dask.delayed(combine_blocks, pure=True), 0
        while len(results) > FAN_IN:
            groups = [results[k : k + FAN_IN] for k in range(0, len(results), FAN_IN)]
            results = [
                combine(group, layout, dask_key_name=self._name("-reduce", slot_name, level, k)) for k, group in enumerate(groups)
            ]
            level += 1
        last = dask.delayed(reduced_blocks, pure=True)
        return last(results, layout, dask_key_name=self._name("-reduce", slot_name, level, 0))


class _Grid:
    """One call with Dask arrays that have several chunks along more than one axis: computed by chunks if it is elementwise.

    It is, if along each of these axes alone it maps rows, and if the trace for the shape of each chunk is that for the whole.
    """

    def __init__(self, function: Jitted[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.arrays: list[da.Array] = []
        _mapped((args, kwargs), lambda x: self.arrays.append(x) if isinstance(x, da.Array) else None)
        self.like = self.arrays[0]
        if any(x.chunks != self.like.chunks for x in self.arrays) or any(map(math.isnan, self.like.shape)):
            shown = " and ".join(dict.fromkeys(str(x.chunks) for x in self.arrays))
            raise ValueError(f"{function.__name__} gets Dask arrays with chunks {shown}, which do not match; rechunk one")

    def result(self) -> da.Array:
        """Return the Dask array of the result. Raises TraceError unless the function is elementwise."""
        whole = self._text(self.like.shape)
        shapes = dict.fromkeys(itertools.product(*(dict.fromkeys(lengths) for lengths in self.like.chunks)))
        if len(shapes) > MOST_SHAPES:
            raise self._refused(f"there are {len(shapes)} shapes of chunks")
        for axis in _chunked_axes(self.like):
            self._check_axis(axis)
        if any(self._text(shape) != whole for shape in shapes):
            raise self._refused("the program depends on the shape")
        (result,) = self._traced(self.like.shape)[0].results
        positions = [x for x in (*self.args, *self.kwargs.values()) if isinstance(x, da.Array)]
        if len(positions) < len(self.arrays):
            raise self._refused("arrays are in containers")
        dtype = result.type.dtype.numpy
        meta, name = np.empty((0,) * self.like.ndim, dtype), f"{self.function.__name__}-{secrets.token_hex(8)}"
        return da.map_blocks(self.function, *self.args, **self.kwargs, dtype=dtype, meta=meta, name=name)

    def _refused(self, why: str) -> TraceError:
        return TraceError(
            f"{self.function.__name__} gets Dask arrays of shape {self.like.shape} with chunks along axes "
            f"{_chunked_axes(self.like)}, and is not computed elementwise ({why}); rechunk them along one axis, as by "
            "x.rechunk({1: -1})"
        )

    def _traced(self, shape: Sequence[int]) -> tuple[Function, Signature, list[int]]:
        """Return the function of a call with arrays of a shape, the signature, and the leaves that are these arrays."""
        used: list[Any] = []

        def replaced(x: Any) -> Any:
            if not isinstance(x, da.Array):
                return x
            used.append(np.broadcast_to(np.zeros((), x.dtype), tuple(map(int, shape))))
            return used[-1]

        args, kwargs = _mapped((self.args, self.kwargs), replaced)
        call = signature(self.function._parameters, args, kwargs)
        traced = self.function._trace(call, args, kwargs)
        results = traced.function.results
        if len(results) != 1 or results[0].type.shape != tuple(shape) or traced.has_effects:
            raise self._refused("its result is not one array of this shape")
        return traced.function, call, [k for k, leaf in enumerate(call.leaves) if any(leaf is x for x in used)]

    def _text(self, shape: Sequence[int]) -> str:
        """Return the program for arrays of a shape, without what depends on extents alone."""
        named = abstract(self._traced(shape)[0])
        return f"{canonical(named.function)}\n{named.constants!r}"

    def _check_axis(self, axis: int) -> None:
        """Raise TraceError unless the function maps rows along an axis."""
        function, _, leaves = self._traced(self.like.shape)
        rows = Rows(axes=dict.fromkeys(leaves, axis), count=int(self.like.shape[axis]), titles={}, are_all=False)
        split = split_of(function, rows)
        parts = [part for pair in split.rounds for part in pair if part is not None]
        if split.result_axes != (axis,) or any(isinstance(p, BlockPart) and (p.reductions or FIRST in p.inputs) for p in parts):
            raise self._refused(f"an element depends on others along axis {axis}")
        if any(a is not None and k not in leaves for k, a in enumerate(split.axes)):
            raise self._refused(f"another argument has elements along axis {axis}")


def _stand_in(x: da.Array, axis: int | None, count: int) -> np.ndarray[Any, Any]:
    """Return an array of the type of a Dask array, without memory of its own."""
    shape = tuple(count if k == axis else int(n) for k, n in enumerate(x.shape))
    return np.broadcast_to(np.zeros((), x.dtype), shape)


def _run(program: BlockProgram, values: Sequence[Any]) -> list[Any]:
    return program(0, values)


def _lazy_array(value: Any, t: Any) -> da.Array:
    """Return the Dask array of a delayed result without rows."""
    return da.from_delayed(value, t.shape, t.dtype.numpy)
