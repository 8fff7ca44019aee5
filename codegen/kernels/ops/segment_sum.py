"""Segment sums: sums of the values that are scattered to the same row, starting from zero. Every row of the result is summed
separately and written once.

A counting sort of the indices lists, for each row, the values that go there, in index order. So rows are independent, and each
sum equals the sum of a loop over all values: the same bits for any number of threads.
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
    """Return the kernel of a ``scatter_sum``; a row is all axes but the leading ones, which are indexed."""
    return _ScatterSum(i).run()


PREFETCH_DISTANCE = 8
"""The number of look-ups by which a value is prefetched ahead of its use."""


class Lists:
    """For each row, the positions of the values that go there, in order, by a counting sort. ``row_index`` returns a value's
    row.

    The indices are read twice. If another thread changes them in between, the lists are wrong, but no memory out of bounds is
    read or written: ends never exceed the last position, and positions are clamped when read.
    """

    def __init__(self, b: KernelBuilder, lookups: Extent, rows: Extent, row_index: Callable[[Value], Value]) -> None:
        self.b, self.row_index = b, row_index
        self.scratch: tuple[RefType, ...] = (RefType(I64, (rows,)), RefType(I64, (lookups,)))
        self.ends = Value(RefType(I64, b.shape((rows,))), "ends")
        self.order = Value(RefType(I64, b.shape((lookups,))), "order")
        self.lookups, self.rows = b.extent_of(lookups), b.extent_of(rows)

    @property
    def parameters(self) -> tuple[Value, ...]:
        """Return the scratch buffers as a kernel's parameters."""
        return self.ends, self.order

    def make(self) -> None:
        """Emit the counting sort."""
        b = self.b
        row = b.open("r")
        b.here("store", b.const(0, I64), self.ends, row)
        b.close(row, self.rows)
        self.count()
        self.find_starts()
        self.fill()

    def count(self) -> None:
        """Count the values that go to each row."""
        b = self.b
        k = b.open("k")
        row = self.row_index(k)
        b.here("store", b.add(b.here("load", self.ends, row), b.const(1, I64)), self.ends, row)
        b.close_ordered(k, self.lookups)

    def find_starts(self) -> None:
        """Replace the counts by the position where each row's list begins."""
        b = self.b
        row = b.open("r")
        before = b.bound(I64, "before")
        after = b.add(before, b.here("load", self.ends, row))
        b.here("store", before, self.ends, row)
        b.close(row, self.rows, (b.const(0, I64),), (after,), None, (before,))

    def fill(self) -> None:
        """Fill the lists, one after the other; afterwards the recorded beginning of each list is its end."""
        b = self.b
        k = b.open("k")
        row = self.row_index(k)
        at = b.minimum(b.here("load", self.ends, row), self.last())
        b.here("store", k, self.order, at)
        b.here("store", b.add(at, b.const(1, I64)), self.ends, row)
        b.close_ordered(k, self.lookups)

    def span(self, row: Value) -> tuple[Value, Value]:
        """Return where a row's list begins, and its length."""
        b, zero, one = self.b, self.b.const(0, I64), self.b.const(1, I64)
        first = b.here("load_if", self.ends, b.gt(row, zero), b.sub(row, one))
        return first, b.maximum(b.sub(b.here("load", self.ends, row), first), zero)

    def value(self, at: Value) -> tuple[Value, Value]:
        """Return the value at a position of all lists, and a later one, whose memory can be prefetched."""
        b = self.b
        later_position = b.minimum(b.add(at, b.const(PREFETCH_DISTANCE, I64)), self.last())
        return self.value_at(at), self.value_at(later_position)

    def value_at(self, at: Value) -> Value:
        """Return the value at a position, clamped: a position that was never written may hold any number."""
        b = self.b
        value: Value = b.maximum(b.minimum(b.here("load", self.order, at), self.last()), b.const(0, I64))
        return value

    def last(self) -> Value:
        """Return the last position."""
        last: Value = self.b.sub(self.lookups, self.b.const(1, I64))
        return last


def row_of(b: KernelBuilder, places: Sequence[Value], axes: Shape) -> Value:
    """Return the flat index of the row of an array at an index into its leading axes."""
    row: Value | None = None
    for index, extent in zip(places, axes, strict=True):
        size = b.extent_of(extent)
        at = wrapped(b, index, size)
        row = at if row is None else b.add(b.mul(row, size), at)
    assert row is not None
    return row


class _ScatterSum:
    """The kernel of a ``scatter_sum`` under construction."""

    def __init__(self, i: Instruction) -> None:
        self.i = i
        self.b = b = KernelBuilder()
        b.location = i.loc
        *indices, values = i.operands
        shape = i.result.type.shape
        axes = shape[: len(indices)]
        lookups, rows, width = product(indices[0].type.shape), product(axes), product(shape[len(indices) :])
        self.indices = [self.ref(I64, (lookups,), f"x{k}") for k in range(len(indices))]
        self.values = self.ref(values.type.dtype, (lookups, width), "values")
        self.out = self.ref(values.type.dtype, (rows, width), "out")
        self.lists = Lists(b, lookups, rows, lambda k: row_of(b, [b.load(ref, k) for ref in self.indices], axes))
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
        """Emit the sums, row by row, over the contiguous elements of each value."""
        b, nothing = self.b, self.b.const(0, self.out.type.dtype)
        row = b.open("r")
        first, count = self.lists.span(row)
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
