"""Sums of what goes to the same place, from nothing: every row of the result is summed by itself and written once.

A counting sort of the indices lists, for each row, the values that go there, in index order. So rows are independent, and each
sum is that of a loop over all values: the same numbers for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.codegen.kernels.elements import wrapped
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import I64, Extent, RefType, Shape
from pullback.ir.core.value import Value
from pullback.ir.shapes.extents import product


def scatter_sum_kernel(i: Instruction) -> Draft:
    """Of a ``scatter_sum``; a row is all axes but the leading ones that the indices are for."""
    return _ScatterSum(i).run()


AHEAD = 8
"""So many look-ups before its turn a value is asked for."""


class Lists:
    """For each row, the places of the values that go there, in order: a counting sort. ``place`` gives a value's row.

    The indices are read twice. If another thread changes them between, the lists are wrong, but nothing outside of memory is
    read or written: ends never pass the last place, and what stands at a place is kept inside.
    """

    def __init__(self, b: KernelBuilder, given: Extent, rows: Extent, place: Callable[[Value], Value]) -> None:
        self.b, self.place = b, place
        self.scratch: tuple[RefType, ...] = (RefType(I64, (rows,)), RefType(I64, (given,)))
        self.ends = Value(RefType(I64, b.shape((rows,))), "ends")
        self.order = Value(RefType(I64, b.shape((given,))), "order")
        self.given, self.rows = b.extent_of(given), b.extent_of(rows)

    @property
    def parameters(self) -> tuple[Value, ...]:
        """The scratch buffers as a kernel's parameters."""
        return self.ends, self.order

    def make(self) -> None:
        b = self.b
        row = b.open("r")
        b.here("store", b.const(0, I64), self.ends, row)
        b.close(row, self.rows)
        self.count()
        self.begin()
        self.list()

    def count(self) -> None:
        """How many values go to each row."""
        b = self.b
        k = b.open("k")
        row = self.place(k)
        b.here("store", b.add(b.here("load", self.ends, row), b.const(1, I64)), self.ends, row)
        b.close_ordered(k, self.given)

    def begin(self) -> None:
        """Where each row's list begins."""
        b = self.b
        row = b.open("r")
        before = b.bound(I64, "before")
        after = b.add(before, b.here("load", self.ends, row))
        b.here("store", before, self.ends, row)
        b.close(row, self.rows, (b.const(0, I64),), (after,), None, (before,))

    def list(self) -> None:
        """The lists, one after the other; what was their beginning becomes their end."""
        b = self.b
        k = b.open("k")
        row = self.place(k)
        at = b.minimum(b.here("load", self.ends, row), self.last())
        b.here("store", k, self.order, at)
        b.here("store", b.add(at, b.const(1, I64)), self.ends, row)
        b.close_ordered(k, self.given)

    def of(self, row: Value) -> tuple[Value, Value]:
        """Where a row's list begins, and how long it is."""
        b, zero, one = self.b, self.b.const(0, I64), self.b.const(1, I64)
        first = b.here("load_if", self.ends, b.gt(row, zero), b.sub(row, one))
        return first, b.maximum(b.sub(b.here("load", self.ends, row), first), zero)

    def value(self, at: Value) -> tuple[Value, Value]:
        """The value at a place of all lists, and one to come, whose memory can be asked for: it is anywhere."""
        b = self.b
        later = b.minimum(b.add(at, b.const(AHEAD, I64)), self.last())
        return self.listed(at), self.listed(later)

    def listed(self, at: Value) -> Value:
        """The value at a place. A place that nothing was written to may hold any number."""
        b = self.b
        found: Value = b.maximum(b.minimum(b.here("load", self.order, at), self.last()), b.const(0, I64))
        return found

    def last(self) -> Value:
        """The last place."""
        found: Value = self.b.sub(self.given, self.b.const(1, I64))
        return found


def row_of(b: KernelBuilder, places: Sequence[Value], axes: Shape) -> Value:
    """The row of an array of such leading axes that indices lead to."""
    found: Value | None = None
    for place, extent in zip(places, axes, strict=True):
        size = b.extent_of(extent)
        at = wrapped(b, place, size)
        found = at if found is None else b.add(b.mul(found, size), at)
    assert found is not None
    return found


class _ScatterSum:
    def __init__(self, i: Instruction) -> None:
        self.i = i
        self.b = b = KernelBuilder()
        b.place = i.loc
        *indices, values = i.operands
        shape = i.result.type.shape
        axes = shape[: len(indices)]
        given, rows, width = product(indices[0].type.shape), product(axes), product(shape[len(indices) :])
        self.indices = [self.ref(I64, (given,), f"x{k}") for k in range(len(indices))]
        self.values = self.ref(values.type.dtype, (given, width), "values")
        self.out = self.ref(values.type.dtype, (rows, width), "out")
        self.lists = Lists(b, given, rows, lambda k: row_of(b, [b.load(ref, k) for ref in self.indices], axes))
        self.width = b.extent_of(width)

    def ref(self, dtype: object, shape: Shape, name: str) -> Value:
        return Value(RefType(dtype, self.b.shape(shape)), name)  # type: ignore[arg-type]

    def run(self) -> Draft:
        b = self.b
        self.lists.make()
        self.add()
        parameters: Sequence[Value] = (*self.indices, self.values, self.out, self.lists.ends, self.lists.order)
        return Draft(kernel=b.kernel(parameters), sizes=b.sizes(), scratch=self.lists.scratch)

    def add(self) -> None:
        """Row by row, each value's elements side by side."""
        b, nothing = self.b, self.b.const(0, self.out.type.dtype)
        row = b.open("r")
        first, count = self.lists.of(row)
        column = b.open("j")
        b.here("store", nothing, self.out, row, column)
        b.close(column, self.width)
        k = b.open("k")
        source, later = self.lists.value(b.add(first, k))
        column = b.open("j")
        b.here("prefetch", self.values, later, column)
        total = b.add(b.here("load", self.out, row, column), b.here("load", self.values, source, column))
        b.here("store", total, self.out, row, column)
        b.close(column, self.width)
        b.close_ordered(k, count)
        b.close(row, self.lists.rows)
