"""Hold the state of a driver while it is emitted: its buffers, scalars, stacks and exits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from pullback.codegen.cpu.llvm.program_interface import Failure
from pullback.codegen.cpu.llvm.text import Extents
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function
from pullback.ir.core.types import Extent, Shape, is_by_value
from pullback.ir.core.value import Value
from pullback.ir.shapes.extents import by_value_in, product


@dataclass(frozen=True, eq=False)
class Buffer:
    """The address of a buffer. ``position`` and ``axes`` of a parameter: its position and its number of strides."""

    pointer: str
    position: int = -1
    axes: int = 0


@dataclass(frozen=True, eq=False)
class HeapSlots:
    """The stack slots of a buffer whose extents are known only at its allocation: the address of its block, null if there is
    none, and its size in bytes."""

    block: str
    size: str


@dataclass(frozen=True, eq=False)
class StackSlots:
    """The stack slots of a growing stack: the address of its block, the count of its values, and its capacity."""

    block: str
    count: str
    capacity: str


class DriverText(Extents, ABC):
    """The function of a driver; ``ProgramWriter`` emits its instructions.

    ``kernels``: the scheduled kernels that the program launches, by name.
    ``bound``: the stack slots of the extents by value; ``heap``: those of the buffers that have such extents.
    ``ticks``: whether it polls the clock; ``cold``: lines after all others, which rarely run; ``status``: the slot of the
    returned status.
    """

    status: str

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Mapping[str, Function] = {}
        self.sizes: dict[Extent, str] = {}
        self.bound: dict[str, str] = {}
        self.heap: dict[Value, HeapSlots] = {}
        self.failures: list[Failure] = []
        self.locations: dict[Value, Buffer] = {}
        self.scalars: dict[Value, str] = {}
        self.reciprocals: dict[Value, str] = {}
        self.stacks: dict[Value, StackSlots] = {}
        self.cold: list[str] = []
        self.ticks = False

    @abstractmethod
    def block(self, block: Block) -> None:
        """Emit the instructions of a block."""

    def size(self, name: str) -> str:
        if is_by_value(name):
            return self.let(f"load i64, ptr {self.bound_slot(name)}")
        if name not in self.sizes:
            self.sizes[name] = self.argument("size", len(self.sizes))
        return self.sizes[name]

    def bound_slot(self, name: str) -> str:
        """Return the stack slot of an extent by value."""
        if name not in self.bound:
            self.bound[name] = self.slot("i64")
        return self.bound[name]

    def extent(self, extent: Extent) -> str:
        """Return an extent or a product of extents as an i64: computed at entry, or, if it depends on extents by value, here,
        with the largest i64 for a product that has more than 64 bits."""
        if isinstance(extent, int) or not by_value_in((extent,)):
            return super().extent(extent)
        total, *factors = map(self.factor_here, extent.split("*"))
        for factor in factors:
            total = self.saturated_product(total, factor)
        return total

    def factor_here(self, factor: str) -> str:
        """Return a factor of an extent that depends on extents by value."""
        dividend, _, divisor = factor.partition("/")
        total, *names = (n if n.isdigit() else self.size(n) for n in dividend.split("."))
        for name in names:
            total = self.saturated_product(total, name)
        return self.let(f"udiv i64 {self.let(f'add i64 {total}, {int(divisor) - 1}')}, {divisor}") if divisor else total

    def saturated_product(self, a: str, b: str) -> str:
        """Return the product of two extents, at most the largest i64."""
        pair = self.intrinsic("{i64, i1}", "llvm.smul.with.overflow.i64", [("i64", a), ("i64", b)])
        low, over = (self.let(f"extractvalue {{i64, i1}} {pair}, {k}") for k in (0, 1))
        return self.let(f"select i1 {over}, i64 {2**63 - 1}, i64 {low}")

    def elements(self, shape: Shape) -> str:
        """Return the number of elements of a shape."""
        return self.extent(product(shape))

    def bytes(self, t: Any) -> str:
        """Return the size of a buffer in bytes."""
        return self.extent(product((*t.shape, t.dtype.bytes)))

    def integer(self, value: Value) -> str:
        """Return the i64 in a buffer or a scalar."""
        return self.scalars[value] if value in self.scalars else self.let(f"load i64, ptr {self.locations[value].pointer}")

    def bind(self, value: Value, pointer: str) -> None:
        """Bind a reference to an address from here on."""
        self.locations[value] = Buffer(pointer)

    def labels(self, *words: str) -> list[str]:
        """Return unique labels that begin with ``words``."""
        self.count += 1
        return [f"{word}{self.count}" for word in words]

    def exit_label(self, failure: Failure) -> str:
        """Return the label of an exit that reports a failure."""
        (label,) = self.labels("stop")
        self.failures.append(failure)
        self.cold += [f"{label}:", f"  store i64 {len(self.failures)}, ptr {self.status}", "  br label %leave"]
        return label
