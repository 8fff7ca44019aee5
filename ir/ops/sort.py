"""Sorting along the last axis: ``sort`` gives the elements in rising order, NaN last, ``argsort`` the stable permutation to it.

The kernel calls NumPy's own routines, row by row, which for numbers are several times quicker at sorting than at finding a
permutation. So ``argsort`` sorts integers: an element's rank among all values of its dtype in the high bits, its place in the low
ones, which also makes it stable. Where a rank has more bits than are left, ``settle_row`` looks at the rest of those that are
equal in front. A derivative goes along the permutation.
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
from pullback.ir.types import DTYPES, I64, ArrayType, RefType, Type, scalar

MOST_PLACES = 1 << 31
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


def _settle(x: Any, packed: Any, shift: Any) -> None:
    places = packed & ((1 << int(shift)) - 1)
    packed[...] = places[np.lexsort((places, x[places], packed >> shift))]


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


@dataclass(frozen=True, eq=False, kw_only=True)
class SettleRow(SortRow):
    """Operands: a vector, its elements' ranks without ``shift`` low bits over places, sorted, and ``shift``, at most 31. Low bits
    of what is left in the second are the places of the elements in order."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        if tuple(types[2:]) != (scalar(I64),):
            raise TypeError("takes a number of bits")
        return super().infer(types[:2], params, regions, same)


settle_row = SettleRow(
    name="settle_row", reference=_settle, routine="sort.int64", ranks=(1, 1), reads=(0, 1), writes=(1,),
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
    is_long = b.gt(length(b, x, 0), b.const(MOST_PLACES, I64))
    for body, condition in ((_by_routine, is_long), (_by_ranks, b.bitnot(is_long))):
        b.enter()
        body(b, x, places)
        b.leave_if(condition)


def _by_routine(b: Any, x: Value, places: Value) -> None:
    i = b.open("i")
    b.here("store", i, places, i)
    b.close(i, length(b, x, 0))
    b.here("argsort_row", x, places)


def _by_ranks(b: Any, x: Value, places: Value) -> None:
    count, is_wide = length(b, x, 0), x.type.dtype.bits == 64
    shift = _place_bits(b, count) if is_wide else b.const(32, I64)
    i = b.open("i")
    rank = _rank(b, b.here("load", x, i))
    high = b.raw_shl(b.raw_shr(rank, shift), shift) if is_wide else b.raw_shl(b.cast(rank, dtype=I64), shift)
    b.here("store", b.bitor(high, i), places, i)
    b.close(i, count)
    b.here("sort_row", places)
    if is_wide:
        b.here("settle_row", x, places, shift)
    i = b.open("i")
    one = b.const(1, I64)
    b.here("store", b.bitand(b.here("load", places, i), b.sub(b.raw_shl(one, shift), one)), places, i)
    b.close(i, count)


def _place_bits(b: Any, count: Value) -> Value:
    """So many bits hold any place."""
    found = b.const(31, I64)
    for bits in (26, 20):
        found = b.select(b.gt(count, b.const(1 << bits, I64)), found, b.const(bits, I64))
    return found


def _rank(b: Any, x: Value) -> Value:
    """A signed integer of as many bits that orders elements: zeros are equal, and so are NaNs, the last."""
    dtype = x.type.dtype
    whole, top = DTYPES[f"i{dtype.bits}"], dtype.bits - 1
    if dtype.kind == "i":
        return x
    if dtype.kind == "u":
        return b.bitxor(b.bitcast(x, dtype=whole), b.const(-(1 << top), whole))
    bits = b.bitcast(b.add(x, b.const(0.0, dtype)), dtype=whole)
    most = b.const((1 << top) - 1, whole)
    rank = b.bitxor(bits, b.bitand(b.raw_shr(bits, b.const(top, whole)), most))
    found: Value = b.select(b.ne(x, x), most, rank)
    return found


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
