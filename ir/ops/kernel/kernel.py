"""Kernel ops. A kernel reads and writes memory through references and loops over iteration spaces; its scalars are rank-0
arrays, so the elementwise ops apply here too. Sizes are named s0, s1, ... and passed at launch.

``for`` has three forms. With ``combine`` (the name of one elementwise op for each result; "argmax" or "argmin" for a pair of
value and position) each iteration yields elements, and the results are their reduction in a fixed tree. Without ``combine``,
values are carried from iteration to iteration in order. With ``scan`` (the name of one elementwise op for each leading carried
value) an iteration takes the prefix of all earlier ones and yields it combined with an element; the grouping may differ.
Iterations that carry nothing are independent unless ``ordered``; ``independent`` promises that each iteration also writes
memory of its own, where analysis does not show it. ``multiple`` promises that the trip count is a multiple of that number;
``short`` marks a trip count that is usually small, ``trip_count`` is the expected one, ``hot`` marks a kernel that runs often.
``map`` is how ``schedule`` runs the loop: "serial", "vector", "core" (CPU), "grid", "block", "lane" (CUDA).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.ir.core.op import Op, Operation, Region, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, RefType, Type, scalar
from pullback.ir.core.value import Value
from pullback.ir.shapes.extents import product

KERNEL = frozenset({"kernel"})
MAX_PRIVATE_BYTES = 1 << 18
"""The largest size in bytes of ``private`` memory that each concurrent run has a copy of."""


def _ref(t: Type) -> RefType:
    if not isinstance(t, RefType):
        raise TypeError(f"expected a reference, found {t}")
    return t


def is_strided(v: Value) -> bool:
    """Return whether a value is a strided reference."""
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
    """The number of threads that loops may use. It may select an algorithm, but must never change a result."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (scalar(I64),)


class Tuned(Op):
    """The choices tuned on this machine, as the bits of an integer. Params: ``subject``, ``dtype`` and ``extents`` of the
    computation that they apply to. They may select an algorithm."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (scalar(I64),)


class Stride(Op):
    """The stride in bytes along an axis (param ``axis``) of a strided reference; other layouts have none."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (ref,) = types
        if _ref(ref).layout != "strided" or not 0 <= params["axis"] < ref.rank:
            raise TypeError("takes a strided reference that has that axis")
        return (scalar(I64),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Load(Op):
    """Reads one element. Operands: a reference, with ``masked`` a condition (false gives zero and reads nothing), one index
    for each axis."""

    masked: bool = False

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        if self.masked:
            _scalars(types[1:2], 1, "bool")
        _scalars(types[2 if self.masked else 1 :], ref.rank)
        return (scalar(ref.dtype),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Store(Op):
    """Writes one element. Operands: the value, a reference, with ``masked`` a condition, one index for each axis."""

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
    """Adds an integer to an element atomically, from any number of threads in any order. Operands as of ``store``."""

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
    """The first operand, a strided matrix, or a copy of it in the second operand, which is dense. The result is contiguous
    along one axis, and its stride along the other is at least that axis's extent, as matrix products require."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        matrix, buffer = map(_ref, types)
        if (
            matrix.layout != "strided"
            or buffer.layout != "c"
            or matrix.rank != 2
            or (matrix.dtype, 2) != (buffer.dtype, buffer.rank)
        ):
            raise TypeError("takes a strided reference of rank 2, and a dense one like it")
        for e, f in zip(matrix.shape, buffer.shape):
            same(e, f)
        return (matrix,)


class SelectRef(Op):
    """One of two references of equal dtype and shape. Operands: a condition, the reference if it holds, the reference
    otherwise. The result is strided."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        _scalars(types[:1], 1, "bool")
        if_true, if_false = _ref(types[1]), _ref(types[2])
        if (if_true.dtype, if_true.rank, if_true.space) != (if_false.dtype, if_false.rank, if_false.space):
            raise TypeError("takes two references of one dtype, rank and space")
        for e, f in zip(if_true.shape, if_false.shape):
            same(e, f)
        return (RefType(if_true.dtype, if_true.shape, "strided", if_true.space),)


class RowView(Op):
    """A strided matrix as a dense reference; its rows must be contiguous, at a stride of a whole number of elements.
    ``transposed``: the columns are contiguous instead, and the result has the axes in the other order."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        if ref.layout != "strided" or ref.rank != 2:
            raise TypeError("takes a strided reference of rank 2")
        return (RefType(ref.dtype, ref.shape[::-1] if params["transposed"] else ref.shape, "c", ref.space),)


class FlatView(Op):
    """A strided matrix, stored contiguously in column-major order, as a dense reference of one axis."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        if ref.layout != "strided" or ref.rank != 2:
            raise TypeError("takes a strided reference of rank 2")
        return (RefType(ref.dtype, (product(ref.shape),), "c", ref.space),)


class StageRows(Op):
    """Some rows of a strided matrix as a dense reference with the indices of the matrix: copied into the kernel's own memory
    unless they are contiguous. Operands: the matrix, the first row and the number of rows, the only ones that may be read;
    optionally the first column and the number of columns, for a tile of these columns: at most as wide as the tiles of
    ``codegen.cpu.loops.stage_rows``, unless the matrix has contiguous rows."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = _ref(types[0])
        _scalars(types[1:], 4 if len(types) > 3 else 2)
        if ref.layout != "strided" or ref.rank != 2:
            raise TypeError("takes a strided reference of rank 2")
        return (RefType(ref.dtype, ref.shape, "c", ref.space),)


class SelectRows(Op):
    """The result of a lowered ``stage_rows``: the matrix itself if a condition holds (as ``row_view`` of a strided one), else
    a copy of some rows. Operands: the condition, the matrix, the copy (a dense reference), the index of its first row, its
    row stride in elements, and optionally the index of its first column (default 0)."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref, copy = _ref(types[1]), _ref(types[2])
        _scalars(types[:1], 1, "bool")
        _scalars(types[3:], 3 if len(types) > 5 else 2)
        if ref.rank != 2 or copy.layout != "c" or copy.rank not in (1, 2) or copy.dtype is not ref.dtype:
            raise TypeError("takes a reference of rank 2, and a dense one for the copy")
        return (RefType(ref.dtype, ref.shape, "c", ref.space),)


class Local(Op):
    """Memory of the kernel's own, of fixed extents and undefined contents. It lasts for the run of the kernel, or of the loop
    chunk that contains it. An optional operand limits the first axis to that number of entries."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        _scalars(types[:1], min(len(types), 1))
        if len(types) > 1:
            raise TypeError("takes one operand at most, the number of entries of the first axis")
        shape = tuple(params["shape"])
        if not all(isinstance(e, int) for e in shape):
            raise TypeError("the extents must be numbers")
        return (RefType(params["dtype"], shape, space="stack"),)


class Private(Op):
    """Memory with the shape of a dense reference, contents undefined, for one run of the enclosing region. Concurrent runs
    have separate copies if it takes at most ``MAX_PRIVATE_BYTES`` bytes; larger memory is the reference's own, which
    nothing else may use."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (ref,) = types
        if _ref(ref).layout != "c":
            raise TypeError("takes a dense reference")
        return (ref,)


class For(Op):
    """A loop. Operands: the trip count (i64) and the initial values. The region takes the index and, without ``combine``, the
    carried values; it yields as many values. ``combine``: a list of combiners; each initial value is combined into its
    result. ``scan``: a list of combiners for the first values, which are carried; the region yields each combined with an
    element by its combiner. ``max_trip_count``: an upper bound of the trip count, if one is known."""

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
    """Return the element that a region combines with a scanned value; None if the region uses the value in any other way."""
    readers = list(_readers(before, region))
    if len(readers) != 1 or readers[0].op.name != combiner or readers[0].results != (after,):
        return None
    first, second = readers[0].operands
    return second if first is before and second is not before else None


def _readers(value: Value, region: Region) -> Iterator[Operation]:
    """Yield the instructions of a region, including nested regions, that have ``value`` as an operand."""
    for i in region.instructions:
        if value in i.operands:
            yield i
        for inner in i.regions:
            yield from _readers(value, inner)


def combined_values(combine: Sequence[str], carried: Sequence[Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """Return each combiner with its carried values: two for argmax and argmin, else one. Raises TypeError."""
    groups, remaining = [], list(carried)
    for name in combine:
        count = 2 if name.startswith("arg") else 1
        if len(remaining) < count:
            raise TypeError("fewer carried values than combiners")
        groups.append((name, tuple(remaining[:count])))
        remaining = remaining[count:]
    if remaining:
        raise TypeError("more carried values than combiners")
    return groups


class If(Op):
    """Runs its region (no parameters, no results) if its operand is true."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (region,) = regions
        _scalars(types, 1, "bool")
        if region.parameters or region.results:
            raise TypeError("the region takes and yields nothing")
        return ()


class Fail(Op):
    """Sets the kernel's status to ``code`` (positive) if the operand is true and no earlier failure was recorded."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        _scalars(types, 1, "bool")
        return ()


class Prefetch(Op):
    """Prefetches an element that is read soon. Operands: a reference, one index for each axis, which may be out of bounds.
    ``into_l1``: the element is read immediately, so it is prefetched into L1."""

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
