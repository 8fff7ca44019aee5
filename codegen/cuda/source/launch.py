"""How emitted CUDA C is launched: what a function's arguments are, and how many blocks and threads it has.

These depend on the extents only, so that results do, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pullback.ir.core.types import DType, Extent, Shape
from pullback.ir.shapes.extents import value_of

THREADS, LONG_THREADS, MANY_THREADS = 256, 512, 1024
"""The threads of a block; for a long row; where a block sums columns."""
MOST_BLOCKS = 1024
MOST_THREADS = MOST_BLOCKS * THREADS
UNKNOWN = MOST_BLOCKS * THREADS
"""What stands for an extent that a kernel computes: it asks for as many blocks as there may be."""
PACKED_FROM = MOST_THREADS
"""Of more elements than these, a thread of a grid takes several at once."""
EACH, EACH_OF_LONG, EACH_OF_MANY = 8, 16, 32
"""A thread of a block for each row takes so many elements of it, if there are enough; of a long one; at most, of many rows: what
threads found is joined once a row, which takes as long as ten elements and more."""
LEAST_THREADS = 64
"""As many as a block must have for a device to be full of threads: it holds 32 blocks for each of its processors."""
MOST_SHARED = 48 << 10
"""Bytes of shared memory that every device gives a block, without being asked for more."""
ALIGNED = 16
"""At multiples of so many bytes begin a block's arrays in shared memory."""
MOST_COPIED = 1 << 25
MANY, TURNS = 8, 4
"""So many times as many blocks are there where a block costs nothing but its launch, if each has so many turns: those that find
no room on the device at first would leave most of it idle at the end, were they few and long."""
FEW_SUMS = 256
"""Products of so many results, of few terms, have a thread for each."""
ENOUGH_TILES = 128
"""So many tiles give a device work."""
LEAST_TERMS = 256
"""A block that shares the terms of sums with others has so many at least."""


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """Memory of a kernel's own: an array of ``shape`` for each block of the launch numbered ``launch``. ``is_private``: it is of
    no use where the block has it in shared memory."""

    name: str
    dtype: DType
    shape: Shape
    launch: int
    is_private: bool = False


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Lines of ``length`` steps cut into chunks of ``least`` or more, each taken by one of ``most`` units at a time, at most
    ``chunks`` a line. ``is_whole``: the launch is made only where lines are one chunk (True) or several (False). ``once``: the
    launch itself has a block for each line. ``joined``: lines of more steps than that are cut, and what their chunks come to is
    joined, a step for each chunk, between two launches with the steps of all chunks: all of it is shortest where a chunk has the
    root of half the line."""

    length: Extent
    least: int
    most: int = MOST_BLOCKS
    chunks: int = MOST_BLOCKS
    is_whole: bool | None = None
    once: bool = False
    joined: int | None = None

    def number(self, lines: int, sizes: Mapping[str, int]) -> int:
        """How many chunks a line has."""
        length, steps = value_of(self.length, sizes), self.least
        if self.joined is not None:
            steps = length if length <= self.joined else max(self.least, math.isqrt(length // 2))
        return max(1, min(-(-length // max(steps, 1)), self.most // max(lines, 1), self.chunks))

    def units(self, lines: int, sizes: Mapping[str, int]) -> int:
        """How many blocks or threads a launch has work for."""
        chunks = self.number(lines, sizes)
        if self.is_whole is not None and self.is_whole != (chunks == 1):
            return 0
        return max(1, lines * (1 if self.once else chunks))


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """The tiles of matrix products: results of ``rows`` by ``columns`` for each of a ``batch``, sums of ``terms``, 0 if the
    kernel computes how many. ``large``, ``small``: the rows and columns of a tile, of which the large ones are taken if there are
    enough. Where even the small ones are few and sums are long, several blocks share the terms of each. ``role``: "large";
    "small", of all terms; "part", of some; "join", what adds up the parts; "few": results are too few for tiles."""

    rows: Extent
    columns: Extent
    terms: Extent
    batch: Shape
    large: tuple[int, int]
    small: tuple[int, int]
    role: str

    def count(self, side: tuple[int, int], sizes: Mapping[str, int]) -> int:
        rows, columns = (-(-value_of(e, sizes) // n) for e, n in zip((self.rows, self.columns), side, strict=True))
        return rows * columns * math.prod(value_of(e, sizes) for e in self.batch)

    def is_few(self, sizes: Mapping[str, int]) -> bool:
        """Whether a thread computes each result."""
        return value_of(self.rows, sizes) * value_of(self.columns, sizes) <= FEW_SUMS and self.most_parts(sizes) < 4

    def most_parts(self, sizes: Mapping[str, int]) -> int:
        return value_of(self.terms, sizes) // LEAST_TERMS

    def parts(self, sizes: Mapping[str, int]) -> int:
        """Among how many blocks the terms of each small tile are shared out."""
        tiles, most = self.count(self.small, sizes), self.most_parts(sizes)
        if not tiles or self.count(self.large, sizes) >= ENOUGH_TILES or most < 4:
            return 1
        return max(1, min(2 * ENOUGH_TILES // tiles, most))

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """0 if another role has these sizes."""
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
    """An operand of a routine: the kernel's argument that it is, or is a part of, and the shape of one matrix, without the axis
    of the parts of complex numbers. ``is_batched``: each element of the batch has its own."""

    position: int
    shape: Shape
    is_batched: bool


@dataclass(frozen=True, kw_only=True)
class Routine:
    """What a launch does as a whole, for each of a ``batch``: the record ``name`` of ``pullback.ir.ops.library.routines`` with
    these params, on numbers of ``dtype`` or, if it ``is_complex``, pairs of those. A library may do it in the launch's place."""

    name: str
    dtype: str
    is_complex: bool
    params: tuple[tuple[str, object], ...]
    operands: tuple[Operand, ...]
    batch: Shape

    @property
    def is_small(self) -> bool:
        """Whether a block does it, which is of use for small matrices alone."""
        return self.name != "gemm" or self.is_complex


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A device function and how to launch it: ``blocks(sizes)`` blocks of ``threads`` threads.

    ``slots``: what the arguments are, in order, as tuples ("pointer", position), ("stride", position, axis) in bytes, ("scalar",
    position, dtype), ("size", number), ("number", its value), an int, ("scratch", number), ("blocks", launch), ("status",), an
    int that starts as 0, ("shared",), an int, the bytes of shared memory, ("parts",), among how many blocks terms are shared out,
    ("width",), an int, how many elements a thread takes at once, ("chunks",), an int, into how many chunks a line is cut.
    ``threads`` are the most; ``along``: the extents that the threads of a block share out, ``around`` those that they share out
    together. ``count``: the extents that are shared out, ``per_block`` of their iterations a block; ``copied``: the shapes of
    which each block has a copy, which nobody else reads if it ``is_private``; ``only``: an extent and what it must be above.
    ``width``: the most elements of the last extent that a thread takes at once. ``routine``: what a library may do instead;
    without a ``name`` nothing else does it.
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
    """What each block has in shared memory if there is room: arrays of a shape and bytes an element."""
    fixed: int = 0
    """The most bytes of shared memory that the function takes besides."""

    @property
    def is_free(self) -> bool:
        """Whether another block costs nothing but its launch, but for what it has in shared memory."""
        return not self.copied or self.is_private

    def threads_for(self, sizes: Mapping[str, int]) -> int:
        """How many threads a block has, a power of two from 32 on."""
        if self.around:
            wanted = -(-math.prod(value_of(e, sizes) for e in self.around) // EACH)
            return max(32, min(self.threads, 1 << max(wanted - 1, 0).bit_length()))
        if not self.along:
            return self.threads
        most, rows = max(value_of(e, sizes) for e in self.along), max(1, math.prod(value_of(e, sizes) for e in self.count))
        if most == UNKNOWN:
            most = EACH * MOST_THREADS // rows
        each = max(EACH, min(rows * most // MOST_THREADS, EACH_OF_MANY)) if self.is_free else EACH
        wanted = max(min(-(-most // each), THREADS), -(-most // max(each, EACH_OF_LONG)), min(-(-most // EACH), LEAST_THREADS))
        return max(32, min(self.threads, 1 << max(wanted - 1, 0).bit_length()))

    def parts(self, sizes: Mapping[str, int]) -> int:
        """Among how many blocks the terms of a product are shared out."""
        return self.tiles.parts(sizes) if self.tiles is not None else 1

    def width_for(self, sizes: Mapping[str, int]) -> int:
        """How many elements a thread takes at once: one where that makes work for more threads."""
        return self.width if math.prod(value_of(e, sizes) for e in self.count) > PACKED_FROM else 1

    def chunks_for(self, sizes: Mapping[str, int]) -> int:
        """How many chunks each line is cut into."""
        assert self.cut is not None
        return self.cut.number(math.prod(value_of(e, sizes) for e in self.count), sizes)

    def shared(self, sizes: Mapping[str, int], room: int = MOST_SHARED) -> int:
        """The bytes of shared memory that a block is given where it may have ``room`` in all; 0 if that is too little."""
        found = sum(-(-math.prod(value_of(e, sizes) for e in shape) * size // ALIGNED) * ALIGNED for shape, size in self.local)
        return found if found + self.fixed <= room else 0

    def blocks(self, sizes: Mapping[str, int]) -> int:
        """How many blocks share the iterations, a function of the sizes s0, s1, ... alone; 0 if there is nothing to launch."""
        if self.only is not None and value_of(self.only[0], sizes) <= self.only[1]:
            return 0
        if self.tiles is not None:
            return self.tiles.blocks(sizes)
        *outer, last = (1, *(value_of(e, sizes) for e in self.count))
        iterations = math.prod(outer) * -(-last // self.width_for(sizes))
        if self.cut is not None:
            units = self.cut.units(iterations, sizes)
            return min(-(-units // self.per_block), MOST_BLOCKS)
        copied = sum(math.prod(value_of(e, sizes) for e in shape) for shape in self.copied)
        most = MOST_THREADS // self.threads_for(sizes)
        if self.shared(sizes):
            most = min(most, MOST_BLOCKS)
        if self.is_free and (not copied or self.shared(sizes)):
            copied, most = 0, max(most, min(MANY * MOST_BLOCKS, iterations // (self.per_block * TURNS)))
        return max(1, min(-(-iterations // self.per_block), most, MOST_COPIED // max(copied, 1)))


@dataclass(frozen=True, kw_only=True)
class Launches:
    """How a kernel is run: ``launches`` in that order, and the memory of its own that it needs."""

    name: str
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...]
