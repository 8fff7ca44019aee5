"""Kernels of sorts along the last axis.

A row is sorted by NumPy's own routine, which for numbers is several times faster at sorting than at finding a permutation. So
``argsort`` sorts integers: an element's rank among all values of its dtype in the high bits, its position in the low ones,
which also makes the sort stable. Where a rank has more bits than are left, ``resolve_ties`` compares the remaining bits of
elements with equal high bits.

Threads share many rows; a long row among few is sorted by all threads (``Partition``). Both ways give the same bits: of values
that compare equal only zeros and NaNs differ in their bits, and long rows have these in one order
(``_ElementSort.normalise_equal``).
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
"""The least number of bytes of a row that may be partitioned."""
ROWS_PER_HELPER = 4
"""Rows are few if there are fewer than this number per helping thread."""
PARTS, CHUNKS = 16, 16
"""The number of parts by value, and the number of chunks by position, of a long row."""
SAMPLE_PER_PART = 64
"""The number of elements of the sample per part."""
SAMPLE = PARTS * SAMPLE_PER_PART
"""The number of elements of the sample."""
SPREAD, SPREAD_BITS = 0x9E3779B1, 16
"""Multiples of the first constant, modulo two to the power of the second, are spread evenly: the positions of the sample have
no period."""
ALIGNMENT = 64
"""The number of elements of which the size of a chunk is a multiple."""
PREFETCH_DISTANCE = 64
"""The number of elements by which the memory of a part is prefetched ahead of its use."""
LEAST_SHARED, TARGET_PREFETCH_DISTANCE = 1 << 14, 16
"""The least number of elements of a row whose ``unsort`` threads share, and the number of elements by which a target is
prefetched ahead of its use."""
MOST_PLACES = 1 << 31
"""The largest length of a row whose positions fit into the low 31 bits of a key."""
LENGTH_BITS = 48
"""The number of bits of an index in a binary search: rows have fewer than 2**48 elements."""
PART = DTYPES["u8"]
"""The dtype of the index of a part."""


def sort_kernel(i: Instruction) -> Draft:
    """Return the kernel of a ``sort`` or ``argsort``."""
    assert isinstance(i.op, Sort)
    return (_Argsort if i.op.gives_places else _ElementSort)(i).run()


def unsort_kernel(i: Instruction) -> Draft:
    """Return the kernel of an ``unsort``: positions are distinct, so values are stored in any order."""
    b = KernelBuilder()
    b.location = i.loc
    references = [
        Value(RefType(v.type.dtype, b.shape(v.type.shape)), n) for v, n in zip((*i.operands, i.result), ("x0", "x1", "out"))
    ]
    counts = [b.extent_of(e) for e in i.result.type.shape]
    if len(counts) == 1:
        _put_row(b, *references, *counts)
        return Draft(kernel=b.kernel(references), sizes=b.sizes())
    places, values, out = references
    index = [b.open("ijklmnop"[min(k, 7)]) for k in range(len(counts))]
    b.here("store", b.load(values, *index), out, *index[:-1], b.load(places, *index))
    for at, count in zip(reversed(index), reversed(counts), strict=True):
        b.close(at, count, independent=True)
    return Draft(kernel=b.kernel(references), sizes=b.sizes())


def _put_row(b: KernelBuilder, places: Value, values: Value, out: Value, length: Value) -> None:
    """Emit the ``unsort`` of one row, whose chunks threads share. Targets are in no order, so their memory is prefetched."""
    chunk_count = b.select(b.ge(length, b.const(LEAST_SHARED, I64)), b.const(CHUNKS, I64), b.const(1, I64))
    chunk, size = b.open("c"), _chunk_size(b, length, chunk_count)
    first = b.minimum(b.mul(chunk, size), length)
    i = b.open("i")
    at = b.add(first, i)
    later_position = b.minimum(b.add(at, b.const(TARGET_PREFETCH_DISTANCE, I64)), b.sub(length, b.const(1, I64)))
    b.here("prefetch", out, b.here("load", places, later_position))
    b.here("store", b.here("load", values, at), out, b.here("load", places, at))
    b.close_ordered(i, b.minimum(size, b.sub(length, first)))
    b.close(chunk, chunk_count, way="core")


def _chunk_size(b: KernelBuilder, length: Value, chunk_count: Value) -> Value:
    """Return the size of equal chunks, each of whole cache lines."""
    size = b.idiv(b.add(length, b.sub(chunk_count, b.const(1, I64))), chunk_count)
    return b.bitand(b.add(size, b.const(ALIGNMENT - 1, I64)), b.const(-ALIGNMENT, I64))


class _Sort:
    """A sort under construction. ``x`` is the present row and ``out`` its result. ``most``: the largest length of a row that
    can be partitioned."""

    most = (1 << LENGTH_BITS) - 1

    def __init__(self, i: Instruction) -> None:
        self.b = b = KernelBuilder()
        b.location = i.loc
        t = i.operands[0].type
        self.shape, self.dtype, self.result_dtype = t.shape, t.dtype, i.result.type.dtype
        self.x = Value(RefType(t.dtype, b.shape(t.shape)), "x")
        self.out = Value(RefType(self.result_dtype, b.shape(t.shape)), "out")
        self.parameters = [self.x, self.out]
        self.scratch: list[RefType] = []
        self.length = b.extent_of(t.shape[-1])
        self.long = LONG // self.result_dtype.bytes
        self.is_long = b.ge(self.length, b.const(self.long, I64))
        self.fits = b.le(self.length, b.const(self.most, I64))

    def run(self) -> Draft:
        b, extent = self.b, self.shape[-1]
        if isinstance(extent, int) and extent < self.long:
            self.rows(self.whole, None)
        else:
            is_parted = b.bitand(b.bitand(self.is_long, self.fits), self.are_few())
            self.rows(self.whole, b.bitnot(is_parted))
            self.rows(Partition(self).run, is_parted, "serial")
            self.normalise_equal()
        return Draft(kernel=b.kernel(self.parameters), sizes=b.sizes(), scratch=tuple(self.scratch))

    def are_few(self) -> Value:
        """Return whether there are fewer rows than threads need; false for one thread."""
        b = self.b
        count = b.const(1, I64)
        for extent in self.shape[:-1]:
            count = b.mul(count, b.extent_of(extent))
        helpers = b.sub(b.here("threads"), b.const(1, I64))
        return b.lt(count, b.mul(helpers, b.const(ROWS_PER_HELPER, I64)))

    def rows(self, body: Callable[[], None], condition: Value | None, way: str = "") -> None:
        """Emit ``body`` for each row, if a condition holds. Without a ``way`` threads may share the rows."""
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
        """Return a new scratch buffer."""
        self.scratch.append(RefType(dtype, (extent,)))
        self.parameters.append(Value(RefType(dtype, self.b.shape((extent,))), name))
        return self.parameters[-1]

    def whole(self) -> None:
        """Emit the sort of the row at once."""
        b = self.b
        i = b.open("i")
        b.here("store", self.element(i), self.out, i)
        b.close(i, self.length)
        self.sort(b.const(0, I64), self.length)

    def element(self, i: Value) -> Value:
        """Return the key that is sorted for an element."""
        raise NotImplementedError

    def least_key(self, element: Value) -> Value:
        """Return the least key of an element with the value of this key."""
        return element

    def sort(self, first: Value, count: Value) -> None:
        """Emit the sort of ``count`` elements of ``out`` from ``first`` on."""
        raise NotImplementedError

    def normalise_equal(self) -> None:
        """Emit code that gives sorted rows the same bits whichever way they were sorted."""


class _ElementSort(_Sort):
    """A sort of the elements themselves."""

    def element(self, i: Value) -> Value:
        return self.b.here("load", self.x, i)

    def sort(self, first: Value, count: Value) -> None:
        self.b.here("sort_row", self.out, first, count)

    def normalise_equal(self) -> None:
        if self.dtype.is_float:
            self.rows(self.normalise_zeros_and_nans, self.is_long, "serial")

    def normalise_zeros_and_nans(self) -> None:
        """Emit code that stores negative zeros before positive ones, since vectorised sorts may have lost some, and one NaN
        for all NaNs."""
        b, zero = self.b, self.b.const(0.0, self.dtype)
        first, end, nans = self.find_ends((lambda x: b.lt(x, zero), lambda x: b.le(x, zero), lambda x: b.eq(x, x)))
        b.when(b.gt(end, first), lambda: self.normalise_zeros(first, b.sub(end, first)))
        i = b.open("i")
        b.here("store", b.const(math.nan, self.dtype), self.out, b.add(nans, i))
        b.close_ordered(i, b.sub(self.length, nans))

    def normalise_zeros(self, first: Value, count: Value) -> None:
        b, integer, zero = self.b, DTYPES[f"i{self.dtype.bits}"], self.b.const(0.0, self.dtype)
        below = b.bitcast(b.neg(zero), dtype=integer)
        i = b.open("i")
        bits = b.bitcast(b.here("load", self.x, i), dtype=integer)
        (negative_count,) = b.close(
            i, self.length, (b.const(0, I64),), (b.cast(b.eq(bits, below), dtype=I64),), ("add",), short=True
        )
        i = b.open("i")
        b.here("store", b.select(b.lt(i, negative_count), b.neg(zero), zero), self.out, b.add(first, i))
        b.close_ordered(i, count)

    def find_ends(self, tests: Sequence[Callable[[Value], Value]]) -> tuple[Value, ...]:
        """Return, for each test, the position in the sorted row where its elements end: interleaved binary searches."""
        b, one = self.b, self.b.const(1, I64)
        k = b.open("k")
        step = b.raw_shl(one, b.sub(b.const(LENGTH_BITS - 1, I64), k))
        ends, after = [b.bound(I64, "end") for _ in tests], []
        for end, test in zip(ends, tests, strict=True):
            at = b.sub(b.add(end, step), one)
            is_inside = b.lt(at, self.length)
            holds = b.bitand(is_inside, test(b.here("load_if", self.out, is_inside, at)))
            after.append(b.select(holds, b.add(end, step), end))
        return b.close(k, b.const(LENGTH_BITS, I64), [b.const(0, I64)] * len(tests), after, None, ends)


class _Argsort(_Sort):
    """An ``argsort``. The low bits of the rank of an f64 or i64 do not fit into a key. A row that is too long for its
    positions to fit is sorted by NumPy's ``argsort``."""

    most = MOST_PLACES

    def __init__(self, i: Instruction) -> None:
        super().__init__(i)
        self.is_wide = self.dtype.bits == 64
        self.shift = self.place_bits() if self.is_wide else self.b.const(32, I64)

    def place_bits(self) -> Value:
        """Return the number of bits that hold any position of the row."""
        b = self.b
        bits_needed = b.const(MOST_PLACES.bit_length() - 1, I64)
        for bits in (26, 20):
            bits_needed = b.select(b.gt(self.length, b.const(1 << bits, I64)), bits_needed, b.const(bits, I64))
        return bits_needed

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
        high = self.least_key(rank) if self.is_wide else b.raw_shl(b.cast(rank, dtype=I64), self.shift)
        return b.bitor(high, i)

    def least_key(self, element: Value) -> Value:
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
    """Return a signed integer of the same width that orders elements: zeros are equal, and so are NaNs, which come last."""
    dtype = x.type.dtype
    signed, top = DTYPES[f"i{dtype.bits}"], dtype.bits - 1
    if dtype.kind == "i":
        return x
    if dtype.kind == "u":
        return b.bitxor(b.bitcast(x, dtype=signed), b.const(-(1 << top), signed))
    bits = b.bitcast(b.add(x, b.const(0.0, dtype)), dtype=signed)
    most = b.const((1 << top) - 1, signed)
    rank = b.bitxor(bits, b.bitand(b.raw_shr(bits, b.const(top, signed)), most))
    ordered: Value = b.select(b.ne(x, x), most, rank)
    return ordered


class Partition:
    """A partition of a long row: all elements of one part precede all elements of the next; then each part is sorted.

    Splitters between parts are elements of a sorted sample (W. Frazer, A. McKellar, "Samplesort", 1970). Chunks of the row are
    searched for their elements' parts, then moved there, in parallel, without branches (P. Sanders, S. Winkel, "Super scalar
    sample sort", 2004). NumPy's routine partitions a row first, too, so that little of this is extra work.
    """

    def __init__(self, row: _Sort) -> None:
        self.row, self.b = row, row.b
        self.sample = row.memory("sample", row.result_dtype, SAMPLE)
        self.parts = row.memory("parts", PART, row.shape[-1])
        self.ends = row.memory("ends", I64, CHUNKS * PARTS)
        self.size = _chunk_size(self.b, row.length, self.b.const(CHUNKS, I64))

    def run(self) -> None:
        splitters = self.split()
        self.chunks(lambda chunk, first, count: self.find(splitters, chunk, first, count))
        self.find_starts()
        self.chunks(self.move)
        self.sort()

    def split(self) -> list[Value]:
        """Return the splitters between parts. The positions of the sample have no period."""
        b, row = self.b, self.row
        i = b.open("i")
        stride = b.raw_shr(row.length, b.const(SAMPLE.bit_length() - 1, I64))
        offset = b.bitand(b.mul(i, b.const(SPREAD, I64)), b.const((1 << SPREAD_BITS) - 1, I64))
        at = b.add(b.mul(i, stride), b.raw_shr(b.mul(offset, stride), b.const(SPREAD_BITS, I64)))
        b.here("store", row.element(at), self.sample, i)
        b.close_ordered(i, b.const(SAMPLE, I64))
        b.here("sort_row", self.sample, b.const(0, I64), b.const(SAMPLE, I64))
        splitters = [b.here("load", self.sample, b.const(SAMPLE_PER_PART * k, I64)) for k in range(1, PARTS)]
        return [row.least_key(value) for value in splitters]

    def chunks(self, body: Callable[[Value, Value, Value], None]) -> None:
        """Emit ``body`` for each chunk, with its index, its first element and its number of elements."""
        b = self.b
        chunk = b.open("c")
        first = b.minimum(b.mul(chunk, self.size), self.row.length)
        body(chunk, first, b.minimum(self.size, b.sub(self.row.length, first)))
        b.close(chunk, b.const(CHUNKS, I64), way="core")

    def find(self, splitters: Sequence[Value], chunk: Value, first: Value, count: Value) -> None:
        """Emit code that finds the part of each element of a chunk, and counts the elements of each part."""
        b = self.b
        i = b.open("i")
        at = b.add(first, i)
        b.here("store", self.part(self.row.element(at), splitters), self.parts, at)
        b.close(i, count, short=True)
        k = b.open("p")
        b.here("store", b.const(0, I64), self.ends, self.end(chunk, k))
        b.close(k, b.const(PARTS, I64))
        i = b.open("i")
        self.advance(chunk, b.add(first, i))
        b.close_ordered(i, count)

    def part(self, element: Value, splitters: Sequence[Value]) -> Value:
        """Return the number of splitters that are not above an element, by a binary search with selects in place of branches.
        No splitter is above a NaN."""
        b, index_dtype = self.b, DTYPES[f"i{element.type.dtype.bits}"]
        part, step = b.const(0, index_dtype), PARTS
        answers: list[Value] = []
        while step > 1:
            candidates = splitters[step // 2 - 1 :: step]
            for answer in answers:
                half = len(candidates) // 2
                candidates = [b.select(answer, high, low) for low, high in zip(candidates[:half], candidates[half:], strict=True)]
            step //= 2
            answers.append(b.bitnot(b.lt(element, *candidates)))
            part = b.select(answers[-1], b.add(part, b.const(step, index_dtype)), part)
        return b.cast(part, dtype=PART)

    def end(self, chunk: Value, part: Value) -> Value:
        """Return the position in ``ends`` that holds how far elements of a chunk fill a part."""
        b = self.b
        return b.add(b.mul(chunk, b.const(PARTS, I64)), part)

    def advance(self, chunk: Value, i: Value) -> Value:
        """Return the end of an element's part, and advance it by one."""
        b = self.b
        position = self.end(chunk, b.cast(b.here("load", self.parts, i), dtype=I64))
        end: Value = b.here("load", self.ends, position)
        b.here("store", b.add(end, b.const(1, I64)), self.ends, position)
        return end

    def find_starts(self) -> None:
        """Emit code that computes where each chunk's elements of a part begin: after the elements of earlier parts, and of
        earlier chunks."""
        b = self.b
        part = b.open("p")
        outer = b.bound(I64, "before")
        chunk = b.open("c")
        before = b.bound(I64, "before")
        position = self.end(chunk, part)
        after = b.add(before, b.here("load", self.ends, position))
        b.here("store", before, self.ends, position)
        (after,) = b.close(chunk, b.const(CHUNKS, I64), (outer,), (after,), None, (before,))
        b.close(part, b.const(PARTS, I64), (b.const(0, I64),), (after,), None, (outer,))

    def move(self, chunk: Value, first: Value, count: Value) -> None:
        """Emit code that moves the elements of a chunk to their parts."""
        b = self.b
        i = b.open("i")
        source = b.add(first, i)
        at = self.advance(chunk, source)
        b.here("store", self.row.element(source), self.row.out, at)
        b.here("prefetch", self.row.out, b.add(at, b.const(PREFETCH_DISTANCE, I64)))
        b.close_ordered(i, count)

    def sort(self) -> None:
        """Emit the sort of each part, which ends where the last chunk has filled it to."""
        b = self.b
        part = b.open("p")
        last = b.const(CHUNKS - 1, I64)
        end = b.here("load", self.ends, self.end(last, part))
        is_later = b.gt(part, b.const(0, I64))
        first = b.here("load_if", self.ends, is_later, self.end(last, b.sub(part, b.const(1, I64))))
        self.row.sort(first, b.sub(end, first))
        b.close(part, b.const(PARTS, I64), way="core")
