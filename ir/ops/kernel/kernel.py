"""Kernel ops. A kernel reads and writes memory through references and loops over iteration spaces; its scalars are rank-0
arrays, so the elementwise ops serve here too. Sizes are named s0, s1, ... and passed at launch.

``for`` has three forms. With ``combine`` (one elementwise op's name, "argmax" or "argmin" a carried value) each iteration
yields an element and the results are their combination in a fixed tree; without, values are carried from iteration to
iteration in order. With ``scan`` (one elementwise op's name a value, those in front of what is combined) iterations get the
combination of all before them and yield it combined with an element, which may be grouped otherwise. Iterations that carry
nothing are independent unless ``ordered``; ``independent`` promises that each also writes memory of its own, where that is not
seen. ``multiple`` promises that the trip count is a multiple of that number; ``short`` says that the trip count is small most
often, ``trip_count`` which one to expect, ``hot`` that the kernel runs often.
``map`` says how ``schedule`` runs the loop: "serial", "vector", "core" (CPU), "grid", "block", "lane" (CUDA).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.core.op import Op, Operation, Region, Same
from pullback.ir.core.types import I64, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.shapes.extents import product

KERNEL = frozenset({"kernel"})
MOST_PRIVATE = 1 << 18


def _ref(t: Type) -> RefType:
    if not isinstance(t, RefType):
        raise TypeError(f"expected a reference, found {t}")
    return t


def is_strided(v: Value) -> bool:
    """Whether a value is a strided reference."""
    return isinstance(v.type, RefType) and v.type.layout == "strided"


def _scalars(types: Sequence[Type], count: int, dtype: Any = I64) -> None:
    if len(types) != count or any(t != scalar(dtype) for t in types):
        raise TypeError(f"expected {count} {dtype} scalars, found {', '.join(map(str, types))}")


class Extent(Op):
    """The value of a size (param ``size``), or of a literal extent."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (scalar(I64),)


class Threads(Op):
    """How many threads loops may run on. It may decide how a result is computed, never what the result is."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (scalar(I64),)


class Tuned(Op):
    """The choices tuned on the machine at hand, as the bits of an integer. Params: ``subject``, ``dtype`` and ``extents``, those
    of the computation they are for. They may decide how a result is computed."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (scalar(I64),)


class Stride(Op):
    """How many bytes apart neighbours along an axis (param ``axis``) of a strided reference are; what is not strided has none."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (ref,) = types
        if _ref(ref).layout != "strided" or not 0 <= params["axis"] < ref.rank:
            raise TypeError("takes a strided reference that has that axis")
        return (scalar(I64),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Load(Op):
    """Operands: a reference, with ``masked`` a condition (false gives zero and reads nothing), one index an axis."""

    masked: bool = False

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        if self.masked:
            _scalars(types[1:2], 1, "bool")
        _scalars(types[2 if self.masked else 1 :], ref.rank)
        return (scalar(ref.dtype),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Store(Op):
    """Operands: the value, a reference, with ``masked`` a condition, one index an axis."""

    masked: bool = False

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[1])
        _scalars(types[:1], 1, ref.dtype)
        if self.masked:
            _scalars(types[2:3], 1, "bool")
        _scalars(types[3 if self.masked else 2 :], ref.rank)
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class AtomicAdd(Store):
    """Add an integer to an element atomically, from any number of threads in any order; operands as of ``store``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if not _ref(types[1]).dtype.is_integer:
            raise TypeError("takes integers, whose sums do not depend on their order")
        return super().infer(types, params, regions, same)


class Subview(Op):
    """The subarray of a reference at one index of its first axis: a reference of one rank less."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        _scalars(types[1:], 1)
        if not ref.rank:
            raise TypeError("the reference has rank 0")
        return (RefType(ref.dtype, ref.shape[1:], ref.layout, ref.space),)


class StridedOrCopy(Op):
    """The first operand, a strided matrix, or a copy of it in the second, dense memory. The result is contiguous along one axis,
    and its stride along the other is at least that axis's extent, as matrix products require."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        one, other = map(_ref, types)
        if one.layout != "strided" or other.layout != "c" or one.rank != 2 or (one.dtype, 2) != (other.dtype, other.rank):
            raise TypeError("takes a strided reference of rank 2, and a dense one like it")
        for e, f in zip(one.shape, other.shape):
            same(e, f)
        return (one,)


class SelectRef(Op):
    """The second or the third operand, references of one dtype and shape: the second if the condition, the first, holds. The
    result is strided."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        _scalars(types[:1], 1, "bool")
        one, other = _ref(types[1]), _ref(types[2])
        if (one.dtype, one.rank, one.space) != (other.dtype, other.rank, other.space):
            raise TypeError("takes two references of one dtype, rank and space")
        for e, f in zip(one.shape, other.shape):
            same(e, f)
        return (RefType(one.dtype, one.shape, "strided", one.space),)


class RowView(Op):
    """A strided reference of two axes as a dense one, whose rows are contiguous and begin a whole number of elements apart.
    ``transposed``: the columns are contiguous instead, and the result has the axes in the other order."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        if ref.layout != "strided" or ref.rank != 2:
            raise TypeError("takes a strided reference of rank 2")
        return (RefType(ref.dtype, ref.shape[::-1] if params["transposed"] else ref.shape, "c", ref.space),)


class FlatView(Op):
    """A strided reference of two axes, stored contiguously column by column, as a dense one of one axis."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        if ref.layout != "strided" or ref.rank != 2:
            raise TypeError("takes a strided reference of rank 2")
        return (RefType(ref.dtype, (product(ref.shape),), "c", ref.space),)


class StageRows(Op):
    """Some rows of a strided matrix as a dense reference with the indices of the matrix: staged in memory of the kernel's own,
    unless they are contiguous. Operands: the matrix, the first row and the number of rows, which are all that may be read; with
    the first column and the number of columns, only these columns: a tile, as narrow as ``codegen.cpu.loops.stage_rows`` has
    tiles unless the matrix has contiguous rows."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        _scalars(types[1:], 4 if len(types) > 3 else 2)
        if ref.layout != "strided" or ref.rank != 2:
            raise TypeError("takes a strided reference of rank 2")
        return (RefType(ref.dtype, ref.shape, "c", ref.space),)


class SelectRows(Op):
    """The result of a lowered ``stage_rows``: the matrix itself if a condition holds, as ``row_view`` of a strided one, or a copy
    of some rows. Operands: the condition, the matrix, the copy, a dense reference, the row that it begins with, the stride of its
    rows in elements, and the column that it begins with, if that is not the first one."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref, copy = _ref(types[1]), _ref(types[2])
        _scalars(types[:1], 1, "bool")
        _scalars(types[3:], 3 if len(types) > 5 else 2)
        if ref.rank != 2 or copy.layout != "c" or copy.rank not in (1, 2) or copy.dtype is not ref.dtype:
            raise TypeError("takes a reference of rank 2, and a dense one for the copy")
        return (RefType(ref.dtype, ref.shape, "c", ref.space),)


class Local(Op):
    """Memory of the kernel's own, contents undefined, of fixed extents: it lasts as long as the kernel, or the chunk of a loop
    that it is in, runs. With an operand, only so many entries of the first axis are there."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        _scalars(types[:1], min(len(types), 1))
        if len(types) > 1:
            raise TypeError("takes one operand at most, the number of entries of the first axis")
        shape = tuple(params["shape"])
        if not all(isinstance(e, int) for e in shape):
            raise TypeError("the extents must be numbers")
        return (RefType(params["dtype"], shape, space="stack"),)


class Private(Op):
    """Memory like that of a dense reference, contents undefined, for one run of the region that it is in. Runs side by side have
    one each, if it takes at most ``MOST_PRIVATE`` bytes; larger memory is the reference's own, which others must not use then."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (ref,) = types
        if _ref(ref).layout != "c":
            raise TypeError("takes a dense reference")
        return (ref,)


class For(Op):
    """Operands: the trip count (i64) and the initial values. The region takes the index and, without ``combine``, the carried
    values; it yields as many values. ``combine``: a list of combiners; the initial value of each joins its result. ``scan``:
    a list of combiners, too; their values come first, are carried, and each yields what its combiner makes of it and an element.
    ``max_trip_count``: the largest trip count, where that is known.
    """

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        _scalars(types[:1], 1)
        carried = tuple(types[1:])
        combine, scanned = params.get("combine"), len(params.get("scan", ()))
        expected = (scalar(I64), *(carried if combine is None and not scanned else carried[:scanned]))
        if tuple(v.type for v in region.parameters) != expected:
            raise TypeError(f"the region must take ({', '.join(map(str, expected))})")
        if tuple(v.type for v in region.results) != carried:
            raise TypeError(f"the region must yield ({', '.join(map(str, carried))})")
        if combine is not None or scanned:
            combined_values(combine or (), carried[scanned:])
        for name, before, after in zip(params.get("scan", ()), region.parameters[1:], region.results):
            if scanned_element(region, name, before, after) is None:
                raise TypeError(f"the region must yield {name} of a scanned value and an element, and use the value once")
        return carried


def scanned_element(region: Region, combiner: str, before: Value, after: Value) -> Value | None:
    """The element that a region combines with a scanned value; None if it does anything else with it."""
    readers = list(_readers(before, region))
    if len(readers) != 1 or readers[0].op.name != combiner or readers[0].results != (after,):
        return None
    first, second = readers[0].operands
    return second if first is before and second is not before else None


def _readers(value: Value, region: Region) -> Iterator[Operation]:
    """Yield the instructions of a region, and of those in it, that have a value as an operand."""
    for i in region.instructions:
        if value in i.operands:
            yield i
        for inner in i.regions:
            yield from _readers(value, inner)


def combined_values(combine: Sequence[str], carried: Sequence[Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """Each combiner with the carried values that are its own: two for argmax and argmin, else one. Raises TypeError."""
    found, rest = [], list(carried)
    for name in combine:
        width = 2 if name.startswith("arg") else 1
        if len(rest) < width:
            raise TypeError("fewer carried values than combiners")
        found.append((name, tuple(rest[:width])))
        rest = rest[width:]
    if rest:
        raise TypeError("more carried values than combiners")
    return found


class If(Op):
    """Runs its region (no parameters, no results) if its operand is true."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        _scalars(types, 1, "bool")
        if region.parameters or region.results:
            raise TypeError("the region takes and yields nothing")
        return ()


class Fail(Op):
    """The kernel's status becomes ``code`` (positive) if the operand is true and no earlier failure was seen."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        _scalars(types, 1, "bool")
        return ()


class Prefetch(Op):
    """Prefetch an element that is read soon. Operands: a reference, one index an axis, which may be out of bounds. ``into_l1``:
    it is read at once and is prefetched into L1."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        _scalars(types[1:], _ref(types[0]).rank)
        return ()


extent = Extent(name="extent", vocabularies=KERNEL)
threads = Threads(name="threads", effect="effect", vocabularies=KERNEL)
tuned = Tuned(name="tuned", extents=("extents",), effect="effect", vocabularies=KERNEL)
stride = Stride(name="stride", vocabularies=KERNEL)
load = Load(name="load", vocabularies=KERNEL)
load_if = Load(name="load_if", masked=True, vocabularies=KERNEL)
store = Store(name="store", effect="effect", vocabularies=KERNEL)
store_if = Store(name="store_if", masked=True, effect="effect", vocabularies=KERNEL)
atomic_add = AtomicAdd(name="atomic_add", effect="effect", vocabularies=KERNEL)
local = Local(name="local", typed=("dtype", "shape"), vocabularies=KERNEL)
private = Private(name="private", vocabularies=KERNEL)
subview = Subview(name="subview", vocabularies=KERNEL)
strided_or_copy = StridedOrCopy(name="strided_or_copy", effect="effect", vocabularies=KERNEL)
select_ref = SelectRef(name="select_ref", vocabularies=KERNEL)
row_view = RowView(name="row_view", vocabularies=KERNEL)
flat_view = FlatView(name="flat_view", vocabularies=KERNEL)
stage_rows = StageRows(name="stage_rows", effect="effect", vocabularies=KERNEL)
select_rows = SelectRows(name="select_rows", vocabularies=KERNEL)
prefetch = Prefetch(name="prefetch", effect="effect", vocabularies=KERNEL)
for_ = For(name="for", effect="effect", vocabularies=KERNEL)
if_ = If(name="if", effect="effect", vocabularies=KERNEL)
fail = Fail(name="fail", effect="fails", vocabularies=KERNEL)
