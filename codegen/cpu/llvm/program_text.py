"""Hold the state of a driver while it is emitted: its buffers, scalars, stacks and exits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from pullback.codegen.cpu.llvm.program_interface import Failure
from pullback.codegen.cpu.llvm.text import Extents
from pullback.ir.core.structure import Block
from pullback.ir.core.types import Extent, Shape
from pullback.ir.core.value import Value
from pullback.ir.shapes.extents import product


@dataclass(frozen=True, eq=False)
class Buffer:
    """The address of a buffer. ``position`` and ``axes`` of a parameter: its position and its number of strides."""

    pointer: str
    position: int = -1
    axes: int = 0


@dataclass(frozen=True, eq=False)
class StackSlots:
    """The stack slots of a growing stack: the address of its block, the count of its values, and its capacity."""

    block: str
    count: str
    capacity: str


class DriverText(Extents, ABC):
    """The function of a driver; ``ProgramWriter`` emits its instructions.

    ``ticks``: whether it polls the clock; ``cold``: lines after all others, which rarely run; ``status``: the slot of the
    returned status.
    """

    status: str

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[Extent, str] = {}
        self.failures: list[Failure] = []
        self.locations: dict[Value, Buffer] = {}
        self.scalars: dict[Value, str] = {}
        self.stacks: dict[Value, StackSlots] = {}
        self.cold: list[str] = []
        self.ticks = False

    @abstractmethod
    def block(self, block: Block) -> None:
        """Emit the instructions of a block."""

    def size(self, name: str) -> str:
        if name not in self.sizes:
            self.sizes[name] = self.argument("size", len(self.sizes))
        return self.sizes[name]

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
