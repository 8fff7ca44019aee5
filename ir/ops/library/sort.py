"""Sorting along the last axis: ``sort`` returns the elements in ascending order, NaN last, ``argsort`` the stable permutation.
Derivatives are permuted likewise. Kernels of sorts call ``sort_row`` and ``resolve_ties``
(``codegen/kernels/ops/sort.py``), or ``sort_rows`` and ``argsort_rows`` where many threads sort together
(``codegen/kernels/ops/cooperative_sort.py``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.op import Contribution, Op, Region, Same
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DTYPES, I64, ArrayType, RefType, Type, scalar
from pullback.ir.ops.library.family import position
from pullback.ir.ops.library.routines import Library

SORTABLE = tuple(DTYPES[name] for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64"))
"""The dtypes that kernels sort; other dtypes are converted to one of these that holds their values."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sort(Op):
    """A sort along the last axis. ``gives_places``: the result is the indices of the elements in order."""

    gives_places: bool = False

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        (t,) = types
        if not isinstance(t, ArrayType) or not t.rank or t.dtype not in SORTABLE:
            raise TypeError("takes an array with axes, of a dtype that can be sorted")
        return (ArrayType(I64, t.shape) if self.gives_places else t,)


class Unsort(Op):
    """Writes values to their positions. Operands: positions along the last axis, each once, and values. It replaces a
    ``scatter_set`` before kernels are built."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        places, values = types
        if not isinstance(places, ArrayType) or not isinstance(values, ArrayType) or places.dtype is not I64:
            raise TypeError("takes places as i64, and values")
        if not values.rank or values.rank != places.rank:
            raise TypeError("takes as many places as values")
        for e, f in zip(values.shape, places.shape, strict=True):
            same(e, f)
        return (values,)

    def evaluate(self, operands: Sequence[Any], params: Mapping[str, Any], types: Sequence[Type]) -> tuple[Any, ...]:
        places, values = operands
        out = np.empty_like(values)
        np.put_along_axis(out, places, values, -1)
        return (out,)


class SortRow(Library):
    """A routine on a part of a dense vector. Operands: the vector, the index of the part's first element, and the number of
    its elements."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        row, *part = types
        if not isinstance(row, RefType) or row.layout != "c" or row.rank != 1 or row.dtype not in SORTABLE:
            raise TypeError("takes a dense vector of a dtype that can be sorted")
        if part != [scalar(I64)] * 2:
            raise TypeError("takes where a part begins and how many elements it has")
        return ()

    def symbol(self, dtype: Any, is_complex: bool = False) -> str:
        return self.routine.format(dtype.numpy.name)


class ArgsortRow(SortRow):
    """A routine on two dense vectors: the second receives the indices of the first's elements in order; its initial order is
    arbitrary."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        row, places = types
        super().infer((row, scalar(I64), scalar(I64)), params, regions, same)
        _check_indices(row, places, same)
        return ()


class ResolveTies(SortRow):
    """Orders elements of equal rank. Operands: a vector; packed keys, sorted, each the rank of an element with the index of
    the element in its ``shift`` low bits; the part of the keys to order, as of ``sort_row``, whose ends must not split a
    run of equal ranks; and ``shift``, at most 31. Afterwards the low bits of the part are the indices of the elements in
    order."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        row, packed, *rest, shift = types
        super().infer((row, *rest), params, regions, same)
        _check_indices(row, packed, same)
        if shift != scalar(I64):
            raise TypeError("takes a number of bits")
        return ()


def _check_indices(row: Type, other: Type, same: Same) -> None:
    if not isinstance(row, RefType) or not isinstance(other, RefType) or (other.dtype, other.layout, other.rank) != (I64, "c", 1):
        raise TypeError("takes a dense vector of i64 beside the other")
    same(other.shape[0], row.shape[0])


class RowSort(Library):
    """Sorts all rows of an array along its last axis. Operands: the array, the result, and scratch of the result's type;
    argsort optionally takes an exclusive upper bound of all keys, which are then non-negative integers. For targets on
    which many threads sort together."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        x, out, spare, *below = types
        if not isinstance(x, RefType) or x.dtype not in SORTABLE or not x.rank or x.layout != "c":
            raise TypeError("takes a dense array with axes, of a dtype that can be sorted")
        if out != RefType(x.dtype if self.name == "sort_rows" else I64, x.shape) or spare != out:
            raise TypeError("takes memory for the result and as much beside")
        if below not in ([], [scalar(I64)]):
            raise TypeError("takes what keys are below, as i64")
        return ()

    def call(self, operands: Sequence[Any], params: Mapping[str, Any]) -> None:
        self.function(*operands)


def _sort_rows(x: Any, out: Any, spare: Any) -> None:
    out[...] = np.sort(x, axis=-1)


def _argsort_rows(x: Any, out: Any, spare: Any, below: Any = None) -> None:
    out[...] = np.argsort(x, axis=-1, kind="stable")


def _sort(x: Any, first: Any, count: Any) -> None:
    x[first : first + count].sort()


def _argsort(x: Any, places: Any) -> None:
    places[...] = np.argsort(x, kind="stable")


def _resolve_ties(x: Any, packed: Any, first: Any, count: Any, shift: Any) -> None:
    part = packed[first : first + count]
    places = part & ((1 << int(shift)) - 1)
    part[...] = places[np.lexsort((places, x[places], part >> shift))]


def _comparisons(shapes: Sequence[tuple[int, ...]], params: Mapping[str, Any]) -> int:
    return 0


sort_row = SortRow(
    name="sort_row", reference=_sort, routine="sort.{}", ranks=(1,), reads=(0,), writes=(0,), fit=lambda *shapes: None,
    arguments=lambda params: (), products=_comparisons,
)  # fmt: skip
argsort_row = ArgsortRow(
    name="argsort_row", reference=_argsort, routine="argsort.{}", ranks=(1, 1), reads=(0, 1), writes=(1,),
    fit=lambda *shapes: None, arguments=lambda params: (), products=_comparisons,
)  # fmt: skip
resolve_ties = ResolveTies(
    name="resolve_ties", reference=_resolve_ties, routine="sort.int64", ranks=(1, 1), reads=(0, 1), writes=(1,),
    fit=lambda *shapes: None, arguments=lambda params: (), products=_comparisons,
)  # fmt: skip

sort_rows = RowSort(
    name="sort_rows", reference=_sort_rows, routine="sort.{}", ranks=(1, 1, 1), reads=(0,), writes=(1, 2),
    fit=lambda *shapes: None, arguments=lambda params: (), products=_comparisons,
)  # fmt: skip
argsort_rows = RowSort(
    name="argsort_rows", reference=_argsort_rows, routine="sort.{}", ranks=(1, 1, 1), reads=(0,), writes=(1, 2),
    fit=lambda *shapes: None, arguments=lambda params: (), products=_comparisons,
)  # fmt: skip


def _rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (x,) = inputs
    rank = x.type.rank
    places = [*(position(b, x.type.shape, k) for k in range(rank - 1)), b.argsort(x)]
    return [b.scatter_set(b.zeros_like(x), *places, cts[0], axes=tuple(range(rank)))]


sort = Sort(name="sort", reference=lambda x: np.sort(x, axis=-1), pullback=_rule)
argsort = Sort(
    name="argsort", reference=lambda x: np.argsort(x, axis=-1, kind="stable"), gives_places=True,
    nondifferentiable="places are integers",
)  # fmt: skip
unsort = Unsort(name="unsort", nondifferentiable="derivatives are taken before it is made")
