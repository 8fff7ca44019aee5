"""Sorting along the last axis: ``sort`` gives the elements in rising order, NaN last, ``argsort`` the stable permutation to it.

The kernel calls NumPy's own routines, row by row. Those that are fast are not stable; so places of equal elements, which lie side
by side, are sorted afterwards. A derivative goes along the permutation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.op import Contribution, Op, Same
from pullback.ir.ops.kernel import KERNEL
from pullback.ir.ops.library import Library
from pullback.ir.ops.linalg import Linalg, length, position
from pullback.ir.structure import Block, Value
from pullback.ir.types import DTYPES, I64, ArrayType, RefType, Type

SORTABLE = tuple(DTYPES[name] for name in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64"))
"""The dtypes that kernels sort; others are converted to one that holds them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Sort(Linalg):
    """The family."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SortRow(Library):
    """A routine on a vector. With a second operand, that gets the places of its elements in order, and holds them before in any
    order."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        refs = [t for t in types if isinstance(t, RefType) and t.layout == "c" and t.rank == 1]
        if len(refs) != len(types) or len(refs) != len(self.ranks) or refs[0].dtype not in SORTABLE:
            raise TypeError("takes dense vectors, of a dtype that can be sorted")
        for t in refs[1:]:
            same(t.shape[0], refs[0].shape[0])
            if t.dtype is not I64:
                raise TypeError("takes places as i64")
        return ()

    def symbol(self, dtype: Any, is_complex: bool = False) -> str:
        return self.routine.format(dtype.numpy.name)


def _sort(x: Any) -> None:
    x.sort()


def _argsort(x: Any, places: Any) -> None:
    places[...] = np.argsort(x, kind="stable")


def _comparisons(shapes: Sequence[tuple[int, ...]], params: Mapping[str, Any]) -> int:
    return 0


sort_row = SortRow(
    name="sort_row", reference=_sort, routine="sort.{}", ranks=(1,), reads=(0,), writes=(0,), fit=lambda *given: None,
    arguments=lambda params: (), products=_comparisons, vocabularies=KERNEL,
)  # fmt: skip
argsort_row = SortRow(
    name="argsort_row", reference=_argsort, routine="argsort.{}", ranks=(1, 1), reads=(0, 1), writes=(1,),
    fit=lambda *given: None, arguments=lambda params: (), products=_comparisons, vocabularies=KERNEL,
)  # fmt: skip


def _rows(types: Sequence[Type]) -> ArrayType:
    (t,) = types
    if not isinstance(t, ArrayType) or not t.rank or t.dtype not in SORTABLE:
        raise TypeError("takes an array with axes, of a dtype that can be sorted")
    return t


def _sort_body(b: Any, params: Mapping[str, Any], x: Value, found: Value) -> None:
    i = b.open("i")
    b.here("store", b.here("load", x, i), found, i)
    b.close(i, length(b, x, 0))
    b.here("sort_row", found)


def _argsort_body(b: Any, params: Mapping[str, Any], x: Value, places: Value) -> None:
    i = b.open("i")
    b.here("store", i, places, i)
    b.close(i, length(b, x, 0))
    b.here("argsort_row", x, places)


def _rule(b: Any, op: Op, inputs: Any, outputs: Any, cts: Any, params: Any, wants: Any) -> list[Contribution]:
    (x,) = inputs
    rank = x.type.rank
    places = [*(position(b, x.type.shape, k) for k in range(rank - 1)), b.argsort(x)]
    return [b.scatter_set(b.zeros_like(x), *places, cts[0], axes=tuple(range(rank)))]


sort = Sort(
    name="sort", reference=lambda x: np.sort(x, axis=-1), pullback=_rule, core=(1, 1), body=_sort_body,
    typed_as=lambda types, params, same: (_rows(types),),
)  # fmt: skip
argsort = Sort(
    name="argsort", reference=lambda x: np.argsort(x, axis=-1, kind="stable"), core=(1, 1), body=_argsort_body,
    typed_as=lambda types, params, same: (ArrayType(I64, _rows(types).shape),), nondifferentiable="places are integers",
)  # fmt: skip
