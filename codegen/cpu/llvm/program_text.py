"""A driver's text in the making: where its buffers, scalars and stacks are, and its ways out."""

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
    """Where a buffer is. ``position`` and ``axes`` of a parameter: its number, and how many strides it has."""

    pointer: str
    position: int = -1
    axes: int = 0


@dataclass(frozen=True, eq=False)
class StackSlots:
    """A stack: slots with the address of its block, the count of its values, and how many fit."""

    block: str
    count: str
    room: str


class DriverText(Extents, ABC):
    """The function of a driver; what writes its instructions derives from it. ``ticks``: whether it looks at the clock; ``cold``:
    lines behind all others, which hardly ever run; ``status``: the slot of what it returns."""

    status: str

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[Extent, str] = {}
        self.failures: list[Failure] = []
        self.places: dict[Value, Buffer] = {}
        self.scalars: dict[Value, str] = {}
        self.stacks: dict[Value, StackSlots] = {}
        self.cold: list[str] = []
        self.ticks = False

    @abstractmethod
    def block(self, block: Block) -> None:
        """Write the instructions of a block."""

    def size(self, name: str) -> str:
        if name not in self.sizes:
            self.sizes[name] = self.argument("size", len(self.sizes))
        return self.sizes[name]

    def elements(self, shape: Shape) -> str:
        return self.extent(product(shape))

    def bytes(self, t: Any) -> str:
        """The size of a buffer."""
        return self.extent(product((*t.shape, t.dtype.bytes)))

    def integer(self, value: Value) -> str:
        """The i64 in a buffer or a scalar."""
        return self.scalars[value] if value in self.scalars else self.let(f"load i64, ptr {self.places[value].pointer}")

    def put(self, value: Value, pointer: str) -> None:
        """A reference is at an address from here on."""
        self.places[value] = Buffer(pointer)

    def labels(self, *words: str) -> list[str]:
        self.count += 1
        return [f"{word}{self.count}" for word in words]

    def leave(self, failure: Failure) -> str:
        """The label of a way out that reports a failure."""
        (label,) = self.labels("stop")
        self.failures.append(failure)
        self.cold += [f"{label}:", f"  store i64 {len(self.failures)}, ptr {self.status}", "  br label %leave"]
        return label
