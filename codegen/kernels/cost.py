"""What a schedule of a group costs: a written model, in nominal sizes, since a program is scheduled once for all shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import nominal_bytes

MEMORY_RATE, CACHE_RATE, WORK_RATE = 40.0, 250.0, 60.0
"""Bytes a nanosecond from memory and from the first cache, and operations a nanosecond, of a core with wide vectors."""
LONE_TIME = 20.0
"""Nanoseconds of a function on one number."""
KEPT = 1 << 19
"""So many bytes stay in a core's second cache between two passes over them."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """``bytes`` to and from memory; ``near``, those between a core and its caches; ``flops``, a function counting as thirty;
    ``footprint``, the bytes that must stay in cache for ``bytes`` to be right; ``is_shared``: whether cores can share the work;
    ``lone``: functions computed one at a time, while all else waits."""

    bytes: int
    near: int
    flops: int
    footprint: int = 0
    is_shared: bool = True
    lone: int = 0

    @property
    def time(self) -> float:
        """Nanoseconds of two cores: whichever of memory, caches and arithmetic takes longest."""
        spilled = self.near if self.footprint > KEPT else self.bytes
        together = max(spilled / MEMORY_RATE, self.near / CACHE_RATE, self.flops / WORK_RATE)
        return (1 if self.is_shared else 2) * (together + LONE_TIME * self.lone)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A way to write the kernel of a group.

    ``fits``: why a group with operands in these layouts cannot have it; None if it can. ``draft``: the kernel; its arguments are
    those of ``group_kernel``. ``targets``: the devices that it serves.
    """

    name: str
    fits: Callable[[Space, Sequence[str]], str | None]
    cost: Callable[[Space], Cost]
    draft: Callable[[Space, Sequence[str], Mapping[int, int]], Draft]
    targets: frozenset[str] = frozenset({"cpu", "cuda"})


def moved_once(space: Space) -> int:
    """The bytes of a group's operands and results, each moved once."""
    return sum(nominal_bytes(v.type) for v in (*space.region.parameters, *space.region.results))


def elements(space: Space) -> int:
    """How many elements a space has, nominally."""
    return nominal_bytes(ArrayType(BOOL, space.extents))


def work(instructions: Sequence[Instruction]) -> int:
    """The operations of instructions on all their elements."""
    return sum(weight(i) * _elements(i) for i in instructions)


def weight(i: Instruction) -> int:
    """About how many operations an instruction is on one element."""
    return 30 if isinstance(i.op, Elementwise) and not i.op.cheap else 1


def elements_of(value: Value) -> int:
    """How many elements a value has, nominally."""
    return nominal_bytes(ArrayType(BOOL, value.type.shape))


def _elements(i: Instruction) -> int:
    return max((elements_of(v) for v in (*i.operands, *i.results)), default=0)
