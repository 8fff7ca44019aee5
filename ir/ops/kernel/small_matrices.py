"""Batches of small matrices: the work on one matrix, in kernel IR without calls, so that each lane or thread works on one.

A ``Matrix`` is one element of a batch in memory; ``LaneScratch`` is scratch memory of one lane. The inner loops run in order
and do not branch on values: a pivot is selected by comparisons, and rows are exchanged at an index that differs between lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, Extent
from pullback.ir.core.value import Value

MAX_EXTENT = 32
"""The largest extent of a small matrix."""
MAX_PRODUCT_EXTENT = 16
"""The largest extent of a small matrix that is multiplied; the rows of larger ones are vectorised instead of the batch."""
UNROLLED_COLUMNS = 4
"""The number of result columns of a product that are accumulated at once, a power of two."""


@dataclass(frozen=True, eq=False)
class Matrix:
    """The element at index ``at`` of a batch of matrices, vectors or scalars."""

    b: Any
    ref: Value
    at: Value

    @property
    def shape(self) -> tuple[Extent, ...]:
        extents: tuple[Extent, ...] = self.ref.type.shape[1:]
        return extents

    def __getitem__(self, index: Value | tuple[Value, ...]) -> Value:
        value: Value = self.b.here("load", self.ref, self.at, *_tuple(index))
        return value

    def __setitem__(self, index: Value | tuple[Value, ...], value: Value) -> None:
        self.b.here("store", value, self.ref, self.at, *_tuple(index))


@dataclass(frozen=True, eq=False)
class LaneScratch:
    """Scratch memory of one lane, indexed by row and column of a matrix with ``columns`` columns. In ``buffer`` the elements
    of ``lanes`` lanes are interleaved."""

    b: Any
    buffer: Value
    columns: Value
    lane: Value | None
    lanes: int

    def flat_index(self, index: tuple[Value, Value]) -> Value:
        b, (row, column) = self.b, index
        position: Value = b.here("add", b.here("mul", row, self.columns), column)
        if self.lane is not None:
            position = b.here("add", b.here("mul", position, b.const(self.lanes, I64)), self.lane)
        return position

    def __getitem__(self, index: tuple[Value, Value]) -> Value:
        value: Value = self.b.here("load", self.buffer, self.flat_index(index))
        return value

    def __setitem__(self, index: tuple[Value, Value], value: Value) -> None:
        self.b.here("store", value, self.buffer, self.flat_index(index))


def _tuple(index: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    return index if isinstance(index, tuple) else (index,)


@dataclass(frozen=True, eq=False)
class Lane:
    """The builder methods for the work on one matrix. ``own(columns)`` returns its scratch memory with that number of columns,
    of ``MAX_EXTENT`` squared elements. ``is_one_of_many``: the lane is one of a vector."""

    b: Any
    own: Callable[[Value], LaneScratch]
    is_one_of_many: bool

    def constant(self, value: int) -> Value:
        constant: Value = self.b.const(value, I64)
        return constant

    def extent(self, m: Matrix, axis: int) -> Value:
        value: Value = self.b.emit(OPS["extent"], (), {"size": m.shape[axis]})[0]
        return value

    def op(self, name: str, *operands: Value) -> Value:
        result: Value = self.b.here(name, *operands)
        return result

    def each(self, first: Value | None, count: Value, body: Callable[[Value], None]) -> None:
        """Emit a loop that runs ``body(k)`` in order for ``count`` values of k from ``first`` (None: 0)."""
        b = self.b
        k = b.open("k")
        body(k if first is None else b.here("add", first, k))
        b.close_ordered(k, count)

    def carry(
        self, first: Value, count: Value, start: Sequence[Value], body: Callable[..., Sequence[Value]]
    ) -> tuple[Value, ...]:
        """Emit a loop over ``count`` values of k from ``first`` that carries ``body(k, *values)``; return the final values."""
        b = self.b
        k = b.open("k")
        before = [b.bound(v.type.dtype, "") for v in start]
        after = body(b.here("add", first, k), *before)
        results: tuple[Value, ...] = b.close(k, count, start, after, None, before)
        return results

    def exchange(self, own: LaneScratch, k: Value, at: Value, columns: Value, first: Value, count: Value) -> None:
        """Exchange row ``k`` with row ``at``, which is ``k`` or one of the ``count`` rows from ``first``. ``at`` differs
        between lanes: a select over all candidate rows is cheaper than a gather and a scatter."""

        def element(j: Value) -> None:
            value_k = own[k, j]
            if not self.is_one_of_many:
                value_at = own[at, j]
                own[at, j] = value_k
            else:

                def select_row(i: Value, selected: Value) -> list[Value]:
                    is_there, candidate = self.op("eq", i, at), own[i, j]
                    own[i, j] = self.op("select", is_there, value_k, candidate)
                    return [self.op("select", is_there, candidate, selected)]

                (value_at,) = self.carry(first, count, [value_k], select_row)
            own[k, j] = value_at

        self.each(None, columns, element)

    def minus_products(
        self, total: Value, first: Value, count: Value, x: Callable[[Value], Value], y: Callable[[Value], Value]
    ) -> Value:
        """Return ``total`` minus the products x(p) * y(p), subtracted one after the other."""
        step: Callable[..., Sequence[Value]] = lambda p, rest: [self.op("sub", rest, self.op("mul", x(p), y(p)))]  # noqa: E731
        return self.carry(first, count, [total], step)[0]


def cholesky(lane: Lane, params: Mapping[str, Any], a: Matrix, factor: Matrix, info: Matrix) -> None:
    """Emit a Cholesky factorisation row by row: the elements before the diagonal, then the diagonal element."""
    b, n = lane.b, lane.extent(a, 0)
    zero, one = lane.constant(0), lane.constant(1)
    own, nothing = lane.own(n), b.const(0, a.ref.type.dtype)

    def row(i: Value, failed: Value) -> list[Value]:
        def column(j: Value) -> None:
            total = lane.minus_products(a[i, j], zero, j, lambda p: own[i, p], lambda p: own[j, p])
            own[i, j] = factor[i, j] = lane.op("div", total, own[j, j])

        lane.each(None, i, column)
        square = lane.minus_products(a[i, i], zero, i, lambda p: own[i, p], lambda p: own[i, p])
        is_bad = lane.op("bitnot", lane.op("gt", square, nothing))
        own[i, i] = factor[i, i] = lane.op("sqrt", square)
        after = lane.op("add", i, one)

        def above(j: Value) -> None:
            factor[i, j] = nothing

        lane.each(after, lane.op("sub", n, after), above)
        is_first = lane.op("bitand", is_bad, lane.op("eq", failed, zero))
        return [lane.op("select", is_first, after, failed)]

    (failed,) = lane.carry(zero, n, [zero], row)
    info[()] = b.here("cast", failed, dtype=info.ref.type.dtype)


def triangular_solve(lane: Lane, params: Mapping[str, Any], a: Matrix, right_sides: Matrix, x: Matrix) -> None:
    """Emit a triangular solve, row by row of x, beginning with the row of the triangle that has one element."""
    own = lane.own(lane.extent(x, 1))
    _load_matrix(lane, right_sides, own)
    _substitute(lane, a, own, x, **params)
    _store_matrix(lane, own, x)


def solve(
    lane: Lane, params: Mapping[str, Any], a: Matrix, packed: Matrix, right_sides: Matrix, pivots: Matrix, x: Matrix
) -> None:
    """Emit a solve with LU factors: both triangles, and the row exchanges before them (after them if transposed)."""
    n, columns, one = lane.extent(x, 0), lane.extent(x, 1), lane.constant(1)
    own, transposed = lane.own(columns), params["transposed"]

    def exchange(step: Value) -> None:
        i = lane.op("sub", lane.op("sub", n, one), step) if transposed else step
        after = lane.op("add", i, one)
        lane.exchange(own, i, pivots[i], columns, after, lane.op("sub", n, after))

    _load_matrix(lane, right_sides, own)
    if not transposed:
        lane.each(None, n, exchange)
    for lower in (False, True) if transposed else (True, False):
        _substitute(lane, packed, own, x, lower, transposed, unit_diagonal=lower)
    if transposed:
        lane.each(None, n, exchange)
    _store_matrix(lane, own, x)


def _load_matrix(lane: Lane, source: Matrix, own: LaneScratch) -> None:
    def row(i: Value) -> None:
        def element(j: Value) -> None:
            own[i, j] = source[i, j]

        lane.each(None, lane.extent(source, 1), element)

    lane.each(None, lane.extent(source, 0), row)


def _store_matrix(lane: Lane, own: LaneScratch, target: Matrix) -> None:
    def row(i: Value) -> None:
        def element(j: Value) -> None:
            target[i, j] = own[i, j]

        lane.each(None, lane.extent(target, 1), element)

    lane.each(None, lane.extent(target, 0), row)


def _substitute(lane: Lane, a: Matrix, own: LaneScratch, x: Matrix, lower: bool, transposed: bool, unit_diagonal: bool) -> None:
    """Solve with a triangle of a, overwriting the right sides."""
    n, columns, one = lane.extent(x, 0), lane.extent(x, 1), lane.constant(1)
    is_forward = lower != transposed

    def row(k: Value) -> None:
        i = k if is_forward else lane.op("sub", lane.op("sub", n, one), k)

        def earlier(p: Value) -> None:
            factor = a[p, i] if transposed else a[i, p]

            def subtract(j: Value) -> None:
                own[i, j] = lane.op("sub", own[i, j], lane.op("mul", factor, own[p, j]))

            lane.each(None, columns, subtract)

        lane.each(lane.constant(0) if is_forward else lane.op("add", i, one), k, earlier)
        if not unit_diagonal:
            pivot = a[i, i]

            def divide(j: Value) -> None:
                own[i, j] = lane.op("div", own[i, j], pivot)

            lane.each(None, columns, divide)

    lane.each(None, n, row)


def lu(lane: Lane, params: Mapping[str, Any], a: Matrix, packed: Matrix, pivots: Matrix) -> None:
    """Emit an LU factorisation column by column; the pivot is the first of the largest remaining elements."""
    b = lane.b
    m, n = lane.extent(a, 0), lane.extent(a, 1)
    one = lane.constant(1)
    own, nothing = lane.own(n), b.const(0, a.ref.type.dtype)

    def larger(i: Value, best: Value, at: Value) -> list[Value]:
        size = lane.op("abs", own[i, column[-1]])
        is_larger = lane.op("gt", size, best)
        return [lane.op("select", is_larger, size, best), lane.op("select", is_larger, i, at)]

    column: list[Value] = []

    def step(k: Value) -> None:
        column.append(k)
        after = lane.op("add", k, one)
        below = lane.op("sub", m, after)
        _, at = lane.carry(after, below, [lane.op("abs", own[k, k]), k], larger)
        pivots[k] = at

        lane.exchange(own, k, at, n, after, below)
        pivot = own[k, k]
        is_none = lane.op("eq", pivot, nothing)

        def eliminate(i: Value) -> None:
            factor = lane.op("select", is_none, own[i, k], lane.op("div", own[i, k], pivot))
            own[i, k] = factor

            def subtract(j: Value) -> None:
                own[i, j] = lane.op("sub", own[i, j], lane.op("mul", factor, own[k, j]))

            lane.each(after, lane.op("sub", n, after), subtract)

        lane.each(after, below, eliminate)

    def begin(i: Value) -> None:
        pivots[i] = i

    lane.each(None, m, begin)
    _load_matrix(lane, a, own)
    lane.each(None, m if params["form"] == "wide" else n, step)
    _store_matrix(lane, own, packed)


def permutation(lane: Lane, params: Mapping[str, Any], pivots: Matrix, perm: Matrix) -> None:
    """Emit the permutation of the row indices that the pivots describe."""
    rows = lane.extent(perm, 0)

    def begin(i: Value) -> None:
        perm[i] = i

    def exchange(step: Value) -> None:
        i = lane.op("sub", lane.op("sub", rows, lane.constant(1)), step) if params["inverse"] else step
        k = pivots[i]
        here, there = perm[i], perm[k]
        perm[k] = here
        perm[i] = there

    lane.each(None, rows, begin)
    lane.each(None, rows, exchange)


def product(lane: Lane, params: Mapping[str, Any], a: Matrix, x: Matrix, out: Matrix) -> None:
    """Emit a x; ``transpose_a`` and ``transpose_b``: that operand is stored transposed. Row by row, several columns at once."""
    b, dtype = lane.b, out.ref.type.dtype
    m, n, depth = lane.extent(out, 0), lane.extent(out, 1), lane.extent(a, 0 if params["transpose_a"] else 1)
    zero, two = lane.constant(0), lane.constant(UNROLLED_COLUMNS.bit_length() - 1)
    own, nothing = lane.own(b.emit(OPS["maximum"], (n, depth))[0]), b.const(0, dtype)
    blocks = b.raw_shr(n, two)
    unrolled_end = b.raw_shl(blocks, two)

    def take(p: Value) -> None:
        def element(j: Value) -> None:
            own[p, j] = x[j, p] if params["transpose_b"] else x[p, j]

        lane.each(None, n, element)

    def emit_row(i: Value) -> None:
        def element(p: Value) -> None:
            own[depth, p] = a[p, i] if params["transpose_a"] else a[i, p]

        def columns(at: Sequence[Value]) -> None:
            def add(p: Value, *totals: Value) -> list[Value]:
                factor = own[depth, p]
                products = [lane.op("mul", factor, own[p, j]) for j in at]
                return [lane.op("add", total, term) for total, term in zip(totals, products, strict=True)]

            for j, total in zip(at, lane.carry(zero, depth, [nothing] * len(at), add), strict=True):
                out[i, j] = total

        def unrolled(k: Value) -> None:
            first = lane.op("raw_shl", k, two)
            columns([first, *(lane.op("add", first, lane.constant(d)) for d in range(1, UNROLLED_COLUMNS))])

        lane.each(None, depth, element)
        lane.each(None, blocks, unrolled)
        lane.each(unrolled_end, lane.op("sub", n, unrolled_end), lambda j: columns([j]))

    lane.each(None, depth, take)
    lane.each(None, m, emit_row)


def multiply(lane: Lane, *matrices: Matrix) -> None:
    """Emit the product of the first two of a lane's matrices into the third."""
    product(lane, {"transpose_a": False, "transpose_b": False}, *matrices)
