"""Small matrices side by side: the work on one of a batch, in kernel IR without calls, so that lanes or threads have one each.

A ``Matrix`` is one element of a batch in memory; ``Own`` is memory of the lane's own. The loops inside run in order and do the
same whatever the numbers are: a pivot is found by comparing, rows are exchanged at a position that each lane has for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.core.op import OPS
from pullback.ir.core.types import I64, Extent
from pullback.ir.core.value import Value

MOST = 32
"""The largest extent of a small matrix."""
MOST_OF_PRODUCT = 16
"""The largest extent of a small matrix that is multiplied: rows of larger ones are vectors of their own."""
TOGETHER = 4


@dataclass(frozen=True, eq=False)
class Matrix:
    """The element at ``at`` of a batch of matrices, vectors or numbers."""

    b: Any
    ref: Value
    at: Value

    @property
    def shape(self) -> tuple[Extent, ...]:
        extents: tuple[Extent, ...] = self.ref.type.shape[1:]
        return extents

    def __getitem__(self, index: Value | tuple[Value, ...]) -> Value:
        found: Value = self.b.here("load", self.ref, self.at, *_tuple(index))
        return found

    def __setitem__(self, index: Value | tuple[Value, ...], value: Value) -> None:
        self.b.here("store", value, self.ref, self.at, *_tuple(index))


@dataclass(frozen=True, eq=False)
class Own:
    """Numbers of a lane's own, by row and column of a matrix with so many ``columns``; ``room`` lies lane beside lane."""

    b: Any
    room: Value
    columns: Value
    lane: Value | None
    lanes: int

    def place(self, index: tuple[Value, Value]) -> Value:
        b, (row, column) = self.b, index
        found: Value = b.here("add", b.here("mul", row, self.columns), column)
        if self.lane is not None:
            found = b.here("add", b.here("mul", found, b.const(self.lanes, I64)), self.lane)
        return found

    def __getitem__(self, index: tuple[Value, Value]) -> Value:
        found: Value = self.b.here("load", self.room, self.place(index))
        return found

    def __setitem__(self, index: tuple[Value, Value], value: Value) -> None:
        self.b.here("store", value, self.room, self.place(index))


def _tuple(index: Value | tuple[Value, ...]) -> tuple[Value, ...]:
    return index if isinstance(index, tuple) else (index,)


@dataclass(frozen=True, eq=False)
class Lane:
    """What the work on one matrix is written with. ``own(columns)`` is its memory of so many columns, ``MOST`` squared numbers.
    ``is_one_of_many``: a vector has others beside it."""

    b: Any
    own: Callable[[Value], Own]
    is_one_of_many: bool

    def number(self, value: int) -> Value:
        found: Value = self.b.const(value, I64)
        return found

    def extent(self, m: Matrix, axis: int) -> Value:
        found: Value = self.b.emit(OPS["extent"], (), {"size": m.shape[axis]})[0]
        return found

    def op(self, name: str, *operands: Value) -> Value:
        found: Value = self.b.here(name, *operands)
        return found

    def each(self, first: Value | None, count: Value, body: Callable[[Value], None]) -> None:
        """``body(k)`` for ``count`` numbers from ``first``, or 0, on, in order."""
        b = self.b
        k = b.open("k")
        body(k if first is None else b.here("add", first, k))
        b.close_ordered(k, count)

    def carry(
        self, first: Value, count: Value, start: Sequence[Value], body: Callable[..., Sequence[Value]]
    ) -> tuple[Value, ...]:
        """The values that ``body(k, *values)`` gives in the end, for ``count`` numbers from ``first`` on."""
        b = self.b
        k = b.open("k")
        before = [b.bound(v.type.dtype, "") for v in start]
        after = body(b.here("add", first, k), *before)
        found: tuple[Value, ...] = b.close(k, count, start, after, None, before)
        return found

    def exchange(self, own: Own, k: Value, at: Value, columns: Value, first: Value, count: Value) -> None:
        """Exchange row ``k`` with row ``at``, it or one of ``count`` from ``first`` on. Lanes differ in it: to go through all
        places where it may be is cheaper than to gather and to scatter."""

        def element(j: Value) -> None:
            here = own[k, j]
            if not self.is_one_of_many:
                there = own[at, j]
                own[at, j] = here
            else:

                def place(i: Value, there: Value) -> list[Value]:
                    is_there, found = self.op("eq", i, at), own[i, j]
                    own[i, j] = self.op("select", is_there, here, found)
                    return [self.op("select", is_there, found, there)]

                (there,) = self.carry(first, count, [here], place)
            own[k, j] = there

        self.each(None, columns, element)

    def less(self, total: Value, first: Value, count: Value, x: Callable[[Value], Value], y: Callable[[Value], Value]) -> Value:
        """``total`` less the products of x(p) and y(p), one after the other."""
        step: Callable[..., Sequence[Value]] = lambda p, rest: [self.op("sub", rest, self.op("mul", x(p), y(p)))]  # noqa: E731
        return self.carry(first, count, [total], step)[0]


def cholesky(lane: Lane, params: Mapping[str, Any], a: Matrix, factor: Matrix, info: Matrix) -> None:
    """Row by row: of each row the elements before the diagonal, then that."""
    b, n = lane.b, lane.extent(a, 0)
    zero, one = lane.number(0), lane.number(1)
    own, nothing = lane.own(n), b.const(0, a.ref.type.dtype)

    def row(i: Value, failed: Value) -> list[Value]:
        def column(j: Value) -> None:
            total = lane.less(a[i, j], zero, j, lambda p: own[i, p], lambda p: own[j, p])
            own[i, j] = factor[i, j] = lane.op("div", total, own[j, j])

        lane.each(None, i, column)
        square = lane.less(a[i, i], zero, i, lambda p: own[i, p], lambda p: own[i, p])
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


def triangular_solve(lane: Lane, params: Mapping[str, Any], a: Matrix, given: Matrix, x: Matrix) -> None:
    """Row by row of x, from the end of the triangle that has one element in a row."""
    own = lane.own(lane.extent(x, 1))
    _take(lane, given, own)
    _substitute(lane, a, own, x, **params)
    _give(lane, own, x)


def solve(lane: Lane, params: Mapping[str, Any], a: Matrix, packed: Matrix, given: Matrix, pivots: Matrix, x: Matrix) -> None:
    """By both triangles of the factors, and the exchanges of rows before or after them."""
    n, columns, one = lane.extent(x, 0), lane.extent(x, 1), lane.number(1)
    own, transposed = lane.own(columns), params["transposed"]

    def exchange(step: Value) -> None:
        i = lane.op("sub", lane.op("sub", n, one), step) if transposed else step
        after = lane.op("add", i, one)
        lane.exchange(own, i, pivots[i], columns, after, lane.op("sub", n, after))

    _take(lane, given, own)
    if not transposed:
        lane.each(None, n, exchange)
    for lower in (False, True) if transposed else (True, False):
        _substitute(lane, packed, own, x, lower, transposed, unit_diagonal=lower)
    if transposed:
        lane.each(None, n, exchange)
    _give(lane, own, x)


def _take(lane: Lane, source: Matrix, own: Own) -> None:
    def row(i: Value) -> None:
        def element(j: Value) -> None:
            own[i, j] = source[i, j]

        lane.each(None, lane.extent(source, 1), element)

    lane.each(None, lane.extent(source, 0), row)


def _give(lane: Lane, own: Own, target: Matrix) -> None:
    def row(i: Value) -> None:
        def element(j: Value) -> None:
            target[i, j] = own[i, j]

        lane.each(None, lane.extent(target, 1), element)

    lane.each(None, lane.extent(target, 0), row)


def _substitute(lane: Lane, a: Matrix, own: Own, x: Matrix, lower: bool, transposed: bool, unit_diagonal: bool) -> None:
    """Solve with a triangle of a, in place of the right sides."""
    n, columns, one = lane.extent(x, 0), lane.extent(x, 1), lane.number(1)
    falls = lower != transposed

    def row(k: Value) -> None:
        i = k if falls else lane.op("sub", lane.op("sub", n, one), k)

        def earlier(p: Value) -> None:
            factor = a[p, i] if transposed else a[i, p]

            def subtract(j: Value) -> None:
                own[i, j] = lane.op("sub", own[i, j], lane.op("mul", factor, own[p, j]))

            lane.each(None, columns, subtract)

        lane.each(lane.number(0) if falls else lane.op("add", i, one), k, earlier)
        if not unit_diagonal:
            pivot = a[i, i]

            def divide(j: Value) -> None:
                own[i, j] = lane.op("div", own[i, j], pivot)

            lane.each(None, columns, divide)

    lane.each(None, n, row)


def lu(lane: Lane, params: Mapping[str, Any], a: Matrix, packed: Matrix, pivots: Matrix) -> None:
    """Column by column: the pivot is the first of the largest elements that are left."""
    b = lane.b
    m, n = lane.extent(a, 0), lane.extent(a, 1)
    one = lane.number(1)
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
    _take(lane, a, own)
    lane.each(None, m if params["form"] == "wide" else n, step)
    _give(lane, own, packed)


def permutation(lane: Lane, params: Mapping[str, Any], pivots: Matrix, perm: Matrix) -> None:
    """The rows' numbers, exchanged as the rows were."""
    rows = lane.extent(perm, 0)

    def begin(i: Value) -> None:
        perm[i] = i

    def exchange(step: Value) -> None:
        i = lane.op("sub", lane.op("sub", rows, lane.number(1)), step) if params["inverse"] else step
        k = pivots[i]
        here, there = perm[i], perm[k]
        perm[k] = here
        perm[i] = there

    lane.each(None, rows, begin)
    lane.each(None, rows, exchange)


def product(lane: Lane, params: Mapping[str, Any], a: Matrix, x: Matrix, out: Matrix) -> None:
    """a x, either of which may be stored transposed (``transpose_a``, ``transpose_b``): row by row, some columns at once."""
    b, dtype = lane.b, out.ref.type.dtype
    m, n, terms = lane.extent(out, 0), lane.extent(out, 1), lane.extent(a, 0 if params["transpose_a"] else 1)
    zero, two = lane.number(0), lane.number(TOGETHER.bit_length() - 1)
    own, nothing = lane.own(b.emit(OPS["maximum"], (n, terms))[0]), b.const(0, dtype)
    rounds = b.raw_shr(n, two)
    done = b.raw_shl(rounds, two)

    def take(p: Value) -> None:
        def element(j: Value) -> None:
            own[p, j] = x[j, p] if params["transpose_b"] else x[p, j]

        lane.each(None, n, element)

    def row(i: Value) -> None:
        def element(p: Value) -> None:
            own[terms, p] = a[p, i] if params["transpose_a"] else a[i, p]

        def columns(at: Sequence[Value]) -> None:
            def add(p: Value, *totals: Value) -> list[Value]:
                factor = own[terms, p]
                products = [lane.op("mul", factor, own[p, j]) for j in at]
                return [lane.op("add", total, term) for total, term in zip(totals, products, strict=True)]

            for j, total in zip(at, lane.carry(zero, terms, [nothing] * len(at), add), strict=True):
                out[i, j] = total

        def several(k: Value) -> None:
            first = lane.op("raw_shl", k, two)
            columns([first, *(lane.op("add", first, lane.number(d)) for d in range(1, TOGETHER))])

        lane.each(None, terms, element)
        lane.each(None, rounds, several)
        lane.each(done, lane.op("sub", n, done), lambda j: columns([j]))

    lane.each(None, terms, take)
    lane.each(None, m, row)


def multiply(lane: Lane, *matrices: Matrix) -> None:
    """The third of a lane's matrices is the product of the others."""
    product(lane, {"transpose_a": False, "transpose_b": False}, *matrices)
