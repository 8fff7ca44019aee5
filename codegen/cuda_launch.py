"""How emitted CUDA C is launched: what a function's arguments are, and how many blocks and threads it has.

These depend on the extents only, so that results do, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from pullback.ir.extents import value_of
from pullback.ir.types import DType, Extent, Shape

THREADS, LONG_THREADS, MANY_THREADS = 256, 512, 1024
"""The threads of a block; for a long row; where a block sums columns."""
MOST_BLOCKS = 1024
MOST_THREADS = MOST_BLOCKS * THREADS
UNKNOWN = MOST_BLOCKS * THREADS
"""What stands for an extent that a kernel computes: it asks for as many blocks as there may be."""
PACKED_FROM = MOST_THREADS
"""Of more elements than these, a thread of a grid takes several at once."""
EACH, EACH_OF_LONG = 8, 16
"""A thread of a block for each row takes so many elements of it, if there are enough; of a long one."""
MOST_SHARED = 48 << 10
"""Bytes of shared memory that every device gives a block, without being asked for more."""
ALIGNED = 16
"""At multiples of so many bytes begin a block's arrays in shared memory."""
MOST_COPIED = 1 << 25


@dataclass(frozen=True, kw_only=True)
class Scratch:
    """Memory of a kernel's own: an array of ``shape`` for each block of the launch numbered ``launch``."""

    name: str
    dtype: DType
    shape: Shape
    launch: int


@dataclass(frozen=True, kw_only=True)
class Cut:
    """Lines of ``length`` steps cut into chunks of ``least`` or more, each taken by one of ``most`` units at a time, at most
    ``chunks`` a line. ``is_whole``: the launch is made only where lines are one chunk (True) or several (False). ``once``: the
    launch itself has a block for each line."""

    length: Extent
    least: int
    most: int = MOST_BLOCKS
    chunks: int = MOST_BLOCKS
    is_whole: bool | None = None
    once: bool = False

    def number(self, lines: int, sizes: Mapping[str, int]) -> int:
        """How many chunks a line has."""
        return max(1, min(-(-value_of(self.length, sizes) // self.least), self.most // max(lines, 1), self.chunks))

    def units(self, lines: int, sizes: Mapping[str, int]) -> int:
        """How many blocks or threads a launch has work for."""
        chunks = self.number(lines, sizes)
        if self.is_whole is not None and self.is_whole != (chunks == 1):
            return 0
        return max(1, lines * (1 if self.once else chunks))


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A device function and how to launch it: ``blocks(sizes)`` blocks of ``threads`` threads.

    ``slots``: what the arguments are, in order, as tuples ("pointer", position), ("stride", position, axis) in bytes, ("scalar",
    position, dtype), ("size", number), ("number", its value), an int, ("scratch", number), ("blocks", launch), ("status",), an
    int that starts as 0, ("shared",), an int, the bytes of shared memory, ("width",), an int, how many elements a thread takes
    at once, ("chunks",), an int, into how many chunks a line is cut. ``threads`` are the most; ``along``: the extents that
    the threads of a block share out. ``count``: the extents that are shared out, ``per_block`` of their iterations a block;
    ``copied``: the shapes of which each block has a copy; ``only``: an extent and what it must be above. ``width``: the most
    elements of the last extent that a thread takes at once.
    """

    name: str
    slots: tuple[tuple[object, ...], ...]
    threads: int
    count: Shape
    per_block: int
    copied: tuple[Shape, ...] = ()
    cut: Cut | None = None
    only: tuple[Extent, int] | None = None
    along: Shape = ()
    width: int = 1
    local: tuple[tuple[Shape, int], ...] = ()
    """What each block has in shared memory if there is room: arrays of a shape and bytes an element."""
    fixed: int = 0
    """The most bytes of shared memory that the function takes besides."""

    def threads_for(self, sizes: Mapping[str, int]) -> int:
        """How many threads a block has, a power of two from 32 on."""
        if not self.along:
            return self.threads
        most = max(value_of(e, sizes) for e in self.along)
        if most == UNKNOWN:
            most = EACH * MOST_THREADS // max(1, math.prod(value_of(e, sizes) for e in self.count))
        wanted = max(min(-(-most // EACH), THREADS), -(-most // EACH_OF_LONG))
        return max(32, min(self.threads, 1 << max(wanted - 1, 0).bit_length()))

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
        *outer, last = (1, *(value_of(e, sizes) for e in self.count))
        iterations = math.prod(outer) * -(-last // self.width_for(sizes))
        if self.cut is not None:
            units = self.cut.units(iterations, sizes)
            return min(-(-units // self.per_block), MOST_BLOCKS)
        copied = sum(math.prod(value_of(e, sizes) for e in shape) for shape in self.copied)
        most = MOST_THREADS // self.threads_for(sizes)
        if self.shared(sizes):
            most = min(most, MOST_BLOCKS)
        return max(1, min(-(-iterations // self.per_block), most, MOST_COPIED // max(copied, 1)))


@dataclass(frozen=True, kw_only=True)
class Launches:
    """How a kernel is run: ``launches`` in that order, and the memory of its own that it needs."""

    name: str
    launches: tuple[Launch, ...]
    scratch: tuple[Scratch, ...]
