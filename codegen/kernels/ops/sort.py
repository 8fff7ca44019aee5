"""Kernels of sorts along the last axis.

A row is sorted by NumPy's own routine, which for numbers is several times quicker at sorting than at finding a permutation. So
``argsort`` sorts integers: an element's rank among all values of its dtype in the high bits, its place in the low ones, which
also makes it stable. Where a rank has more bits than are left, ``resolve_ties`` compares the rest of those with equal high
bits.

Threads share many rows; a long row of few is sorted by all of them (``Parting``). Both give the same bits: of what compares equal
only zeros and NaNs differ in theirs, and long rows have these in one order (``_Elements.unite``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pullback.codegen.kernels.builder import Draft, KernelBuilder
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import DTYPES, I64, DType, Extent, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.library.sort import Sort

LONG = 1 << 19
"""Rows of so many bytes may be parted."""
FEW = 4
"""Fewer than so many rows for each thread that could help are few."""
PARTS, CHUNKS = 16, 16
EACH = 64
"""So many elements of the sample are taken for each part."""
SAMPLE = PARTS * EACH
SPREAD, SPREAD_BITS = 0x9E3779B1, 16
"""Multiples of the first, modulo two to the power of the second, lie everywhere: places of the sample keep to no period."""
ALIGNMENT = 64
AHEAD = 64
"""So many elements before its turn the memory of a part is asked for."""
SHARED, EARLY = 1 << 14, 16
"""Threads share the values of a row of so many that go to their places; so many before its turn a place is asked for."""
MOST_PLACES = 1 << 31
LENGTH_BITS = 48
PART = DTYPES["u8"]


def sort_kernel(i: Instruction) -> Draft:
    """Of a ``sort`` or ``argsort``."""
    assert isinstance(i.op, Sort)
    return (_Places if i.op.gives_places else _Elements)(i).run()


def unsort_kernel(i: Instruction) -> Draft:
    """Of an ``unsort``: no two values have one place, so that they go there in any order."""
    b = KernelBuilder()
    b.place = i.loc
    given = [Value(RefType(v.type.dtype, b.shape(v.type.shape)), n) for v, n in zip((*i.operands, i.result), ("x0", "x1", "out"))]
    counts = [b.extent_of(e) for e in i.result.type.shape]
    if len(counts) == 1:
        _put_row(b, *given, *counts)
        return Draft(kernel=b.kernel(given), sizes=b.sizes())
    places, values, out = given
    index = [b.open("ijklmnop"[min(k, 7)]) for k in range(len(counts))]
    b.here("store", b.load(values, *index), out, *index[:-1], b.load(places, *index))
    for at, count in zip(reversed(index), reversed(counts), strict=True):
        b.close(at, count, independent=True)
    return Draft(kernel=b.kernel(given), sizes=b.sizes())


def _put_row(b: KernelBuilder, places: Value, values: Value, out: Value, length: Value) -> None:
    """One row, of which threads share chunks. Places are anywhere, and their memory is asked for early."""
    number = b.select(b.ge(length, b.const(SHARED, I64)), b.const(CHUNKS, I64), b.const(1, I64))
    chunk, size = b.open("c"), _chunk_size(b, length, number)
    first = b.minimum(b.mul(chunk, size), length)
    i = b.open("i")
    at = b.add(first, i)
    later = b.minimum(b.add(at, b.const(EARLY, I64)), b.sub(length, b.const(1, I64)))
    b.here("prefetch", out, b.here("load", places, later))
    b.here("store", b.here("load", values, at), out, b.here("load", places, at))
    b.close_ordered(i, b.minimum(size, b.sub(length, first)))
    b.close(chunk, number, way="core")


def _chunk_size(b: KernelBuilder, length: Value, number: Value) -> Value:
    """Of equal chunks, whole lines of memory each."""
    size = b.idiv(b.add(length, b.sub(number, b.const(1, I64))), number)
    return b.bitand(b.add(size, b.const(ALIGNMENT - 1, I64)), b.const(-ALIGNMENT, I64))


class _Sort:
    """Of the row at hand, ``x`` are the elements and ``out`` what becomes of them. ``most``: so many fit."""

    most = (1 << LENGTH_BITS) - 1

    def __init__(self, i: Instruction) -> None:
        self.b = b = KernelBuilder()
        b.place = i.loc
        t = i.operands[0].type
        self.shape, self.dtype, self.given = t.shape, t.dtype, i.result.type.dtype
        self.x = Value(RefType(t.dtype, b.shape(t.shape)), "x")
        self.out = Value(RefType(self.given, b.shape(t.shape)), "out")
        self.parameters = [self.x, self.out]
        self.scratch: list[RefType] = []
        self.length = b.extent_of(t.shape[-1])
        self.long = LONG // self.given.bytes
        self.is_long = b.ge(self.length, b.const(self.long, I64))
        self.fits = b.le(self.length, b.const(self.most, I64))

    def run(self) -> Draft:
        b, extent = self.b, self.shape[-1]
        if isinstance(extent, int) and extent < self.long:
            self.rows(self.whole, None)
        else:
            is_parted = b.bitand(b.bitand(self.is_long, self.fits), self.are_few())
            self.rows(self.whole, b.bitnot(is_parted))
            self.rows(Parting(self).run, is_parted, "serial")
            self.unite()
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes(), scratch=tuple(self.scratch))

    def are_few(self) -> Value:
        """Whether there are fewer rows than threads would want; to one thread they are not."""
        b = self.b
        count = b.const(1, I64)
        for extent in self.shape[:-1]:
            count = b.mul(count, b.extent_of(extent))
        helpers = b.sub(b.here("threads"), b.const(1, I64))
        return b.lt(count, b.mul(helpers, b.const(FEW, I64)))

    def rows(self, body: Callable[[], None], condition: Value | None, way: str = "") -> None:
        """What ``body`` appends for each row, if a condition holds. Without a ``way`` threads may share the rows."""
        b, x, out = self.b, self.x, self.out
        counts = [b.extent_of(e) for e in self.shape[:-1]]
        if not counts and condition is not None:
            b.when(condition, body)
            return
        if condition is not None:
            counts[0] = b.select(condition, counts[0], b.const(0, I64))
        index = []
        for k in range(len(counts)):
            index.append(b.open("ijklmnop"[min(k, 7)]))
            self.x, self.out = (b.here("subview", ref, index[-1]) for ref in (self.x, self.out))
        body()
        for at, count in zip(reversed(index), reversed(counts), strict=True):
            b.close(at, count, way=way)
        self.x, self.out = x, out

    def memory(self, name: str, dtype: DType, extent: Extent) -> Value:
        """A scratch buffer."""
        self.scratch.append(RefType(dtype, (extent,)))
        self.parameters.append(Value(RefType(dtype, self.b.shape((extent,))), name))
        return self.parameters[-1]

    def whole(self) -> None:
        """Sort the row at once."""
        b = self.b
        i = b.open("i")
        b.here("store", self.element(i), self.out, i)
        b.close(i, self.length)
        self.sort(b.const(0, I64), self.length)

    def element(self, i: Value) -> Value:
        """What is sorted for an element."""
        raise NotImplementedError

    def without_place(self, element: Value) -> Value:
        """The least of what may be sorted for an element as large."""
        return element

    def sort(self, first: Value, count: Value) -> None:
        """Sort so many of ``out`` from a first one on."""
        raise NotImplementedError

    def unite(self) -> None:
        """Give sorted rows the bits that each way of sorting them gives."""


class _Elements(_Sort):
    def element(self, i: Value) -> Value:
        return self.b.here("load", self.x, i)

    def sort(self, first: Value, count: Value) -> None:
        self.b.here("sort_row", self.out, first, count)

    def unite(self) -> None:
        if self.dtype.is_float:
            self.rows(self.unite_equal, self.is_long, "serial")

    def unite_equal(self) -> None:
        """Zeros below zero first, of which sorts with vectors may have lost some; one NaN for all."""
        b, zero = self.b, self.b.const(0.0, self.dtype)
        first, end, nans = self.ends((lambda x: b.lt(x, zero), lambda x: b.le(x, zero), lambda x: b.eq(x, x)))
        b.when(b.gt(end, first), lambda: self.unite_zeros(first, b.sub(end, first)))
        i = b.open("i")
        b.here("store", b.const(math.nan, self.dtype), self.out, b.add(nans, i))
        b.close_ordered(i, b.sub(self.length, nans))

    def unite_zeros(self, first: Value, count: Value) -> None:
        b, whole, zero = self.b, DTYPES[f"i{self.dtype.bits}"], self.b.const(0.0, self.dtype)
        below = b.bitcast(b.neg(zero), dtype=whole)
        i = b.open("i")
        bits = b.bitcast(b.here("load", self.x, i), dtype=whole)
        (number,) = b.close(i, self.length, (b.const(0, I64),), (b.cast(b.eq(bits, below), dtype=I64),), ("add",), short=True)
        i = b.open("i")
        b.here("store", b.select(b.lt(i, number), b.neg(zero), zero), self.out, b.add(first, i))
        b.close_ordered(i, count)

    def ends(self, tests: Sequence[Callable[[Value], Value]]) -> tuple[Value, ...]:
        """Where elements of the sorted row end of which something holds: binary searches, side by side."""
        b, one = self.b, self.b.const(1, I64)
        k = b.open("k")
        step = b.raw_shl(one, b.sub(b.const(LENGTH_BITS - 1, I64), k))
        found, after = [b.bound(I64, "end") for _ in tests], []
        for end, test in zip(found, tests, strict=True):
            at = b.sub(b.add(end, step), one)
            is_inside = b.lt(at, self.length)
            holds = b.bitand(is_inside, test(b.here("load_if", self.out, is_inside, at)))
            after.append(b.select(holds, b.add(end, step), end))
        return b.close(k, b.const(LENGTH_BITS, I64), [b.const(0, I64)] * len(tests), after, None, found)


class _Places(_Sort):
    """Of an f64 or i64 the low bits of the rank do not fit. A row with more places than fit is left to NumPy's ``argsort``."""

    most = MOST_PLACES

    def __init__(self, i: Instruction) -> None:
        super().__init__(i)
        self.is_wide = self.dtype.bits == 64
        self.shift = self.place_bits() if self.is_wide else self.b.const(32, I64)

    def place_bits(self) -> Value:
        """So many bits hold any place."""
        b = self.b
        found = b.const(MOST_PLACES.bit_length() - 1, I64)
        for bits in (26, 20):
            found = b.select(b.gt(self.length, b.const(1 << bits, I64)), found, b.const(bits, I64))
        return found

    def whole(self) -> None:
        b = self.b
        b.when(self.fits, super().whole)
        b.when(b.bitnot(self.fits), self.by_routine)

    def by_routine(self) -> None:
        b = self.b
        i = b.open("i")
        b.here("store", i, self.out, i)
        b.close(i, self.length)
        b.here("argsort_row", self.x, self.out)

    def element(self, i: Value) -> Value:
        b, rank = self.b, _rank(self.b, self.b.here("load", self.x, i))
        high = self.without_place(rank) if self.is_wide else b.raw_shl(b.cast(rank, dtype=I64), self.shift)
        return b.bitor(high, i)

    def without_place(self, element: Value) -> Value:
        b, shift = self.b, self.shift
        return b.raw_shl(b.raw_shr(element, shift), shift)

    def sort(self, first: Value, count: Value) -> None:
        b, one = self.b, self.b.const(1, I64)
        b.here("sort_row", self.out, first, count)
        if self.is_wide:
            b.here("resolve_ties", self.x, self.out, first, count, self.shift)
        i = b.open("i")
        at = b.add(first, i)
        b.here("store", b.bitand(b.here("load", self.out, at), b.sub(b.raw_shl(one, self.shift), one)), self.out, at)
        b.close(i, count)


def _rank(b: KernelBuilder, x: Value) -> Value:
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


class Parting:
    """A long row in parts, all elements of one before all of the next, which are then sorted.

    Between parts are elements of a sorted sample (W. Frazer, A. McKellar, "Samplesort", 1970). Chunks of the row are searched for
    their elements' parts, then moved there, side by side, without branches (P. Sanders, S. Winkel, "Super scalar sample sort",
    2004). NumPy's routine, too, parts a row first, so that little of this is more work.
    """

    def __init__(self, row: _Sort) -> None:
        self.row, self.b = row, row.b
        self.sample = row.memory("sample", row.given, SAMPLE)
        self.parts = row.memory("parts", PART, row.shape[-1])
        self.ends = row.memory("ends", I64, CHUNKS * PARTS)
        self.size = _chunk_size(self.b, row.length, self.b.const(CHUNKS, I64))

    def run(self) -> None:
        splitters = self.split()
        self.chunks(lambda chunk, first, count: self.find(splitters, chunk, first, count))
        self.begin()
        self.chunks(self.move)
        self.sort()

    def split(self) -> list[Value]:
        """What is between parts. The places of the sample keep to no period."""
        b, row = self.b, self.row
        i = b.open("i")
        stride = b.raw_shr(row.length, b.const(SAMPLE.bit_length() - 1, I64))
        beside = b.bitand(b.mul(i, b.const(SPREAD, I64)), b.const((1 << SPREAD_BITS) - 1, I64))
        at = b.add(b.mul(i, stride), b.raw_shr(b.mul(beside, stride), b.const(SPREAD_BITS, I64)))
        b.here("store", row.element(at), self.sample, i)
        b.close_ordered(i, b.const(SAMPLE, I64))
        b.here("sort_row", self.sample, b.const(0, I64), b.const(SAMPLE, I64))
        found = [b.here("load", self.sample, b.const(EACH * k, I64)) for k in range(1, PARTS)]
        return [row.without_place(value) for value in found]

    def chunks(self, body: Callable[[Value, Value, Value], None]) -> None:
        """What ``body`` appends for each chunk, its first element and their number."""
        b = self.b
        chunk = b.open("c")
        first = b.minimum(b.mul(chunk, self.size), self.row.length)
        body(chunk, first, b.minimum(self.size, b.sub(self.row.length, first)))
        b.close(chunk, b.const(CHUNKS, I64), way="core")

    def find(self, splitters: Sequence[Value], chunk: Value, first: Value, count: Value) -> None:
        """Which part each element of a chunk belongs to, and how many do to each."""
        b = self.b
        i = b.open("i")
        at = b.add(first, i)
        b.here("store", self.part(self.row.element(at), splitters), self.parts, at)
        b.close(i, count, short=True)
        k = b.open("p")
        b.here("store", b.const(0, I64), self.ends, self.end(chunk, k))
        b.close(k, b.const(PARTS, I64))
        i = b.open("i")
        self.next(chunk, b.add(first, i))
        b.close_ordered(i, count)

    def part(self, element: Value, splitters: Sequence[Value]) -> Value:
        """How many splitters are not above an element, by a binary search in which choices take the place of branches. A NaN is
        below none."""
        b, whole = self.b, DTYPES[f"i{element.type.dtype.bits}"]
        found, step = b.const(0, whole), PARTS
        answers: list[Value] = []
        while step > 1:
            met = splitters[step // 2 - 1 :: step]
            for answer in answers:
                half = len(met) // 2
                met = [b.select(answer, high, low) for low, high in zip(met[:half], met[half:], strict=True)]
            step //= 2
            answers.append(b.bitnot(b.lt(element, *met)))
            found = b.select(answers[-1], b.add(found, b.const(step, whole)), found)
        return b.cast(found, dtype=PART)

    def end(self, chunk: Value, part: Value) -> Value:
        """Where is kept how far elements of a chunk fill a part."""
        b = self.b
        return b.add(b.mul(chunk, b.const(PARTS, I64)), part)

    def next(self, chunk: Value, i: Value) -> Value:
        """The end of an element's part, which moves on by one."""
        b = self.b
        place = self.end(chunk, b.cast(b.here("load", self.parts, i), dtype=I64))
        found: Value = b.here("load", self.ends, place)
        b.here("store", b.add(found, b.const(1, I64)), self.ends, place)
        return found

    def begin(self) -> None:
        """Where each chunk's elements of a part go: behind those of earlier parts, and of earlier chunks."""
        b = self.b
        part = b.open("p")
        outer = b.bound(I64, "before")
        chunk = b.open("c")
        before = b.bound(I64, "before")
        place = self.end(chunk, part)
        after = b.add(before, b.here("load", self.ends, place))
        b.here("store", before, self.ends, place)
        (after,) = b.close(chunk, b.const(CHUNKS, I64), (outer,), (after,), None, (before,))
        b.close(part, b.const(PARTS, I64), (b.const(0, I64),), (after,), None, (outer,))

    def move(self, chunk: Value, first: Value, count: Value) -> None:
        """The elements of a chunk to their parts."""
        b = self.b
        i = b.open("i")
        source = b.add(first, i)
        at = self.next(chunk, source)
        b.here("store", self.row.element(source), self.row.out, at)
        b.here("prefetch", self.row.out, b.add(at, b.const(AHEAD, I64)))
        b.close_ordered(i, count)

    def sort(self) -> None:
        """Each part by itself: it ends where the last chunk has filled it to."""
        b = self.b
        part = b.open("p")
        last = b.const(CHUNKS - 1, I64)
        end = b.here("load", self.ends, self.end(last, part))
        is_later = b.gt(part, b.const(0, I64))
        first = b.here("load_if", self.ends, is_later, self.end(last, b.sub(part, b.const(1, I64))))
        self.row.sort(first, b.sub(end, first))
        b.close(part, b.const(PARTS, I64), way="core")
