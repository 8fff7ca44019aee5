"""The launches of emitted CUDA C: arguments of a function, number of blocks and threads.

These depend on the extents only, and therefore so do results.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import DType, Extent, Shape
from pullback.ir.shapes.extents import value_of

THREADS, LONG_THREADS, MANY_THREADS = 256, 512, 1024
"""Threads of a block: usually; of a block for each long row; of a block that sums columns."""
MOST_BLOCKS = 1024
"""Most blocks of a launch."""
MOST_THREADS = MOST_BLOCKS * THREADS
"""Most threads of a launch."""
UNKNOWN_EXTENT = MOST_BLOCKS * THREADS
"""The value used for an extent that a kernel computes; it yields the largest number of blocks."""
PACKED_FROM = MOST_THREADS
"""Number of elements above which a thread of a grid takes several at a time."""
ELEMENTS, ELEMENTS_OF_LONG_ROW, ELEMENTS_OF_MANY_ROWS = 8, 16, 32
"""Elements of a row per thread, for a block that computes a row: usually; of a long row; at most, if there are many rows.
Combining the threads' partial results takes, once per row, as long as ten elements and more."""
LEAST_THREADS = 64
"""Threads that a block must have to fill a device with threads: a multiprocessor holds 32 blocks."""
MOST_SHARED = 48 << 10
"""Bytes of shared memory that every device gives a block by default."""
ALIGNMENT = 16
"""Alignment in bytes of a block's arrays in shared memory."""
MOST_COPIED = 1 << 25
"""Most elements in all blocks' copies together."""
FREE_BLOCKS_FACTOR, LEAST_ITERATIONS = 8, 4
"""Factor by which ``MOST_BLOCKS`` is exceeded where a block costs nothing but its launch, and the iterations each block must
then have. With few, long blocks, those that do not fit on the device at first would leave most of it idle at the end."""
FEW_SUMS = 256
"""Most results of a product with a small K for which each result gets a thread."""
ENOUGH_TILES = 128
"""Number of tiles that keeps a device busy."""
LEAST_DEPTH = 256
"""Least K iterations of a block with split-K."""


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """Scratch memory of a kernel: an array of ``shape`` for each block of the launch with index ``launch``. ``is_private``: it
    is unused where the block has the array in shared memory."""

    name: str
    dtype: DType
    shape: Shape
    launch: int
    is_private: bool = False


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Lines of ``length`` steps split into chunks of at least ``least`` steps, at most ``chunks`` per line, processed by at
    most ``most`` units (blocks or threads). ``is_whole``: the launch happens only where lines are a single chunk (True) or
    several (False). ``once``: the launch itself has a unit for each line. ``joined``: lines of more steps than this are
    split, and the results of their chunks are combined, one step per chunk, between two launches that run the steps of all
    chunks; the total is shortest where a chunk has the square root of half the line's steps."""

    length: Extent
    least: int
    most: int = MOST_BLOCKS
    chunks: int = MOST_BLOCKS
    is_whole: bool | None = None
    once: bool = False
    joined: int | None = None

    def chunk_count(self, lines: int, sizes: Mapping[str, int]) -> int:
        """Return the number of chunks of a line."""
        length, steps = value_of(self.length, sizes), self.least
        if self.joined is not None:
            steps = length if length <= self.joined else max(self.least, math.isqrt(length // 2))
        return max(1, min(-(-length // max(steps, 1)), self.most // max(lines, 1), self.chunks))

    def unit_count(self, lines: int, sizes: Mapping[str, int]) -> int:
        """Return the number of blocks or threads for which a launch has work."""
        chunks = self.chunk_count(lines, sizes)
        if self.is_whole is not None and self.is_whole != (chunks == 1):
            return 0
        return max(1, lines * (1 if self.once else chunks))


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """The tiles of matrix products: ``rows`` by ``columns`` results for each of a ``batch``, with a reduction axis K of extent
    ``depth``, 0 if the kernel computes it. ``large``, ``small``: rows and columns of a tile; large ones are used if there
    are enough of them. Where even the small tiles are few and K is long, several blocks share the K of each (split-K).
    ``role``: "large"; "small", for all of K; "part", for a part of K; "join", which adds up the parts; "few", if there are
    too few results for tiles."""

    rows: Extent
    columns: Extent
    depth: Extent
    batch: Shape
    large: tuple[int, int]
    small: tuple[int, int]
    role: str

    def count(self, side: tuple[int, int], sizes: Mapping[str, int]) -> int:
        """Return the number of tiles of ``side`` rows and columns."""
        rows, columns = (-(-value_of(e, sizes) // n) for e, n in zip((self.rows, self.columns), side, strict=True))
        return rows * columns * math.prod(value_of(e, sizes) for e in self.batch)

    def is_few(self, sizes: Mapping[str, int]) -> bool:
        """Return whether a thread computes each result."""
        return value_of(self.rows, sizes) * value_of(self.columns, sizes) <= FEW_SUMS and self.most_parts(sizes) < 4

    def most_parts(self, sizes: Mapping[str, int]) -> int:
        """Return the largest number of parts into which K is split."""
        return value_of(self.depth, sizes) // LEAST_DEPTH

    def parts(self, sizes: Mapping[str, int]) -> int:
        """Return the number of blocks that share the K of each small tile."""
        tiles, most = self.count(self.small, sizes), self.most_parts(sizes)
        if not tiles or self.count(self.large, sizes) >= ENOUGH_TILES or most < 4:
            return 1
        return max(1, min(2 * ENOUGH_TILES // tiles, most))

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """Return the number of blocks; 0 if another role is used for these sizes."""
        parts, large, small = self.parts(sizes), self.count(self.large, sizes), self.count(self.small, sizes)
        threads = min(-(-self.count((1, 1), sizes) // THREADS), MOST_BLOCKS)
        if self.is_few(sizes) or self.role == "few":
            return threads if self.is_few(sizes) and self.role == "few" else 0
        match self.role:
            case "large":
                return large if large >= ENOUGH_TILES else 0
            case "small":
                return small if parts == 1 and large < ENOUGH_TILES else 0
            case "part":
                return small * parts if parts > 1 else 0
        return threads if parts > 1 else 0


@dataclass(frozen=True, kw_only=True)
class Operand:
    """An operand of a routine: the position of the kernel's argument that contains it, and the shape of one matrix, without
    the axis of real and imaginary parts. ``is_batched``: each element of the batch has its own."""

    position: int
    shape: Shape
    is_batched: bool


@dataclass(frozen=True, kw_only=True)
class Routine:
    """A routine that a launch implements, for each element of a ``batch``: the record ``name`` of
    ``pullback.ir.ops.library.routines`` with these params, on numbers of ``dtype`` or, if it ``is_complex``, pairs of them.
    A library call may replace the launch."""

    name: str
    dtype: str
    is_complex: bool
    params: tuple[tuple[str, object], ...]
    operands: tuple[Operand, ...]
    batch: Shape

    @property
    def is_for_small_matrices(self) -> bool:
        """Return whether a block computes it, which is efficient for small matrices only."""
        return self.name != "gemm" or self.is_complex


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A device function and its launch: ``blocks(sizes)`` blocks of ``threads`` threads.

    ``slots``: the arguments, in order, as tuples:

    - ("pointer", position), ("scalar", position, dtype) and ("stride", position, axis), in bytes: of the kernel's argument
    - ("size", index): an extent
    - ("number", value): an int
    - ("scratch", index): a scratch buffer
    - ("blocks", launch): the blocks of an earlier launch
    - ("status",): a pointer to an int that starts as 0
    - ("shared",): an int, the bytes of shared memory
    - ("parts",): an int, the number of blocks that share the K of a tile
    - ("width",): an int, the elements that a thread takes at a time
    - ("chunks",): an int, the chunks of a line

    ``threads`` is the maximum; ``along``: the extents that the threads of a block distribute one by one; ``around``: extents
    that they distribute together. ``count``: the extents that are distributed over blocks, ``per_block`` iterations each;
    ``copied``: the shapes of which each block has a copy, which no other block reads if it ``is_private``; ``only``: an extent
    and the value that it must exceed. ``width``: the most elements of the last extent that a thread takes at a time.
    ``routine``: the library routine that may replace the launch; if ``name`` is empty, it must.
    """

    name: str
    slots: tuple[tuple[object, ...], ...]
    threads: int
    count: Shape
    per_block: int
    copied: tuple[Shape, ...] = ()
    is_private: bool = False
    cut: Cut | None = None
    only: tuple[Extent, int] | None = None
    along: Shape = ()
    tiles: Tiles | None = None
    around: Shape = ()
    orders: Shape = ()
    routine: Routine | None = None
    width: int = 1
    local: tuple[tuple[Shape, int], ...] = ()
    """Arrays of each block that are in shared memory if they fit: shape and bytes per element."""
    fixed: int = 0
    """Most bytes of shared memory that the function needs in addition."""

    @property
    def is_free(self) -> bool:
        """Return whether an additional block costs nothing but its launch and its shared memory."""
        return not self.copied or self.is_private

    def threads_for(self, sizes: Mapping[str, int]) -> int:
        """Return the number of threads of a block, a power of two and at least 32."""
        if self.around:
            needed = -(-math.prod(value_of(e, sizes) for e in self.around) // ELEMENTS)
            return max(32, min(self.threads, 1 << max(needed - 1, 0).bit_length()))
        if not self.along:
            return self.threads
        most, rows = max(value_of(e, sizes) for e in self.along), max(1, math.prod(value_of(e, sizes) for e in self.count))
        if most == UNKNOWN_EXTENT:
            most = ELEMENTS * MOST_THREADS // rows
        share = max(ELEMENTS, min(rows * most // MOST_THREADS, ELEMENTS_OF_MANY_ROWS)) if self.is_free else ELEMENTS
        needed = max(
            min(-(-most // share), THREADS),
            -(-most // max(share, ELEMENTS_OF_LONG_ROW)),
            min(-(-most // ELEMENTS), LEAST_THREADS),
        )
        return max(32, min(self.threads, 1 << max(needed - 1, 0).bit_length()))

    def parts(self, sizes: Mapping[str, int]) -> int:
        """Return the number of blocks that share the K of a product's tile."""
        return self.tiles.parts(sizes) if self.tiles is not None else 1

    def width_for(self, sizes: Mapping[str, int]) -> int:
        """Return the number of elements that a thread takes at a time: one where several would leave threads without work."""
        return self.width if math.prod(value_of(e, sizes) for e in self.count) > PACKED_FROM else 1

    def chunks_for(self, sizes: Mapping[str, int]) -> int:
        """Return the number of chunks of each line."""
        assert self.cut is not None
        return self.cut.chunk_count(math.prod(value_of(e, sizes) for e in self.count), sizes)

    def shared(self, sizes: Mapping[str, int], available: int = MOST_SHARED) -> int:
        """Return the bytes of shared memory of a block if ``available`` bytes exist; 0 if its arrays do not fit."""
        total = sum(
            -(-math.prod(value_of(e, sizes) for e in shape) * size // ALIGNMENT) * ALIGNMENT for shape, size in self.local
        )
        return total if total + self.fixed <= available else 0

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """Return the number of blocks that share the iterations, a function of the sizes s0, s1, ... alone; 0 for no launch."""
        if self.only is not None and value_of(self.only[0], sizes) <= self.only[1]:
            return 0
        if self.tiles is not None:
            return self.tiles.blocks(sizes)
        *outer, last = (1, *(value_of(e, sizes) for e in self.count))
        iterations = math.prod(outer) * -(-last // self.width_for(sizes))
        if self.cut is not None:
            units = self.cut.unit_count(iterations, sizes)
            return min(-(-units // self.per_block), MOST_BLOCKS)
        copied = sum(math.prod(value_of(e, sizes) for e in shape) for shape in self.copied)
        most = MOST_THREADS // self.threads_for(sizes)
        if self.shared(sizes):
            most = min(most, MOST_BLOCKS)
        if self.is_free and (not copied or self.shared(sizes)):
            copied, most = 0, max(most, min(FREE_BLOCKS_FACTOR * MOST_BLOCKS, iterations // (self.per_block * LEAST_ITERATIONS)))
        return max(1, min(-(-iterations // self.per_block), most, MOST_COPIED // max(copied, 1)))


@dataclass(frozen=True, kw_only=True)
class Launches:
    """The execution of a kernel: ``launches`` in order, and its scratch memory."""

    name: str
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...]
