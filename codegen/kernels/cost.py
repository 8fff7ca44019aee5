"""The cost model of the schedules of a group. It uses nominal sizes, since a program is scheduled once for all shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.kernels.builder import Draft
from pullback.codegen.kernels.iteration_space import Space
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import BOOL, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.shapes.extents import nominal_bytes

MEMORY_RATE, CACHE_RATE, WORK_RATE = 40.0, 250.0, 60.0
"""Bytes per nanosecond from memory and from L1, and operations per nanosecond, of a core with wide vectors."""
SCALAR_FUNCTION_TIME = 20.0
"""Nanoseconds of a function that is computed as a scalar."""
L2_BYTES = 1 << 19
"""The number of bytes that stay in a core's L2 between two passes over them."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of a kernel. ``bytes`` to and from memory; ``cached``, the bytes between a core and its caches; ``flops``, a
    function counting as thirty; ``footprint``, the bytes that must stay in cache for ``bytes`` to be right; ``is_shared``:
    whether cores can share the work; ``scalar_functions``: the number of functions that are computed as scalars and delay
    everything else."""

    bytes: int
    cached: int
    flops: int
    footprint: int = 0
    is_shared: bool = True
    scalar_functions: int = 0

    @property
    def time(self) -> float:
        """Return the nanoseconds on two cores: the maximum over memory, caches and arithmetic."""
        spilled = self.cached if self.footprint > L2_BYTES else self.bytes
        together = max(spilled / MEMORY_RATE, self.cached / CACHE_RATE, self.flops / WORK_RATE)
        return (1 if self.is_shared else 2) * (together + SCALAR_FUNCTION_TIME * self.scalar_functions)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A strategy for writing the kernel of a group.

    ``fits``: why a group with operands in these layouts cannot use it; None if it can. ``draft``: the kernel; its arguments
    are the arguments of ``group_kernel``. ``targets``: the devices that it supports.
    """

    name: str
    fits: Callable[[Space, Sequence[str]], str | None]
    cost: Callable[[Space], Cost]
    draft: Callable[[Space, Sequence[str], Mapping[int, int]], Draft]
    targets: frozenset[str] = frozenset({"cpu", "cuda"})


def moved_once(space: Space) -> int:
    """Return the bytes of a group's operands and results, each moved once."""
    return sum(nominal_bytes(v.type) for v in (*space.region.parameters, *space.region.results))


def elements(space: Space) -> int:
    """Return the nominal number of elements of a space."""
    return nominal_bytes(ArrayType(BOOL, space.extents))


def work(instructions: Sequence[Instruction]) -> int:
    """Return the number of operations of instructions on all their elements."""
    return sum(weight(i) * _elements(i) for i in instructions)


def weight(i: Instruction) -> int:
    """Return about how many operations an instruction is on one element."""
    return 30 if isinstance(i.op, Elementwise) and not i.op.cheap else 1


def elements_of(value: Value) -> int:
    """Return the nominal number of elements of a value."""
    return nominal_bytes(ArrayType(BOOL, value.type.shape))


def _elements(i: Instruction) -> int:
    return max((elements_of(v) for v in (*i.operands, *i.results)), default=0)
