"""Programs on a CUDA device, written out: their parts, with all that does not change from call to call.

Where buffers lie is planned once for each set of sizes: one block of the device's pool holds all temporaries, the kernels' own
memory and the statuses.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.runtime.cuda.device.memory import Block
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram
from pullback.runtime.cuda.program.plan import pieces_of
from pullback.runtime.cuda.program.plan_control_flow import Writer
from pullback.runtime.cuda.program.planner import FOUND, WORD, Unfit, rounded
from pullback.runtime.cuda.program.steps import Filled, Patched, Piece

APART = 1 << 18
"""Arrays of so many bytes travel while the device computes what it can."""
KEYS = {"i": "q", "u": "Q"}
"""What packs a scalar, so that it is another for each number, by the first letter of its dtype."""


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A result: the row that it is in, and its type."""

    row: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Layout:
    """A program with its sizes, written out: its parts, the rows of their addresses, and its results. ``ran``: pieces that have
    run; ``is_repeatable``: whether calls launch graphs. Raises Unfit."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        self.executable = executable
        self.device = executable.device
        self.sizes = instance.sizes
        written = Writer(executable, instance)
        self.parts = written.parts
        self.failing = written.failing
        self.plan = written.plan
        self.results = tuple(self._described(v) for v in self.plan.shown)
        self.state_row, self.state_at = written.state_row, rounded(written.room_bytes)
        self.state_bytes = FOUND + WORD * len(self.failing) if self.failing else 0
        self.arena_bytes = self.state_at + self.state_bytes
        self.shown = [self._shown(v, written) for v in executable.program.results]
        steps = [each for piece in pieces_of(self.parts) for each in piece.steps]
        launches = [each for each in steps if isinstance(each, Patched)]
        scalars = {(position, dtype) for each in launches for _, position, dtype in each.scalars}
        self.scalars = sorted({*scalars, *(each.scalar for each in steps if isinstance(each, Filled) and each.scalar)})
        self.strided = sorted({position for each in launches for _, position, _ in each.strides})
        self.is_one = len(self.parts) == 1 and isinstance(self.parts[0], Piece)
        self.is_repeatable = any(piece.is_captured for piece in pieces_of(self.parts))
        self.is_exclusive = bool(self.failing) or not self.is_one
        self.packer = struct.Struct("".join(KEYS.get(dtype[0], "?" if dtype == "bool" else "d") for _, dtype in self.scalars))
        parameters = executable.program.parameters
        self.arrays = [k for k, v in enumerate(parameters) if isinstance(v.type, RefType)]
        self.fresh = self._fresh() if self.is_one and self.arrays and not self.is_exclusive and not self.strided else []
        self.ends = self._ends() if self.is_one else {}
        self.ran: set[Piece] = set()
        self.named = executable.title, "a kernel"
        self.temporaries = f"the temporaries of {executable.title}"

    def take_arena(self) -> Block | None:
        """Returns memory for the temporaries of a call, None where there are none. The context is current."""
        return self.device.take(self.arena_bytes, self.temporaries) if self.arena_bytes else None

    def _described(self, value: Value) -> tuple[int, int, str]:
        """The bytes of the block of a result and of the result, and what an error calls it."""
        shape, dtype = self.executable.shape(value, self.sizes), value.type.dtype
        text = f"{dtype}[{','.join(map(str, shape))}]"
        size = math.prod(shape) * dtype.bytes
        return self.device.pool.rounded(size), size, f"result {value.name or 'without name'} of {self.executable.title} ({text})"

    def _shown(self, value: Value, written: Writer) -> Shown:
        row, shift = written.at(value)
        if shift or row >= written.room_row:
            raise Unfit("a result within other memory")
        return Shown(row, value.type.dtype.numpy, self.executable.shape(value, self.sizes))

    def _fresh(self) -> list[tuple[int, np.dtype[Any], tuple[int, ...], tuple[Any, ...]]]:
        """Of each result, in order, which buffer it is, its type, and its key as an argument; none where some is an argument."""
        first = len(self.executable.program.parameters)
        if any(shown.row < first for shown in self.shown):
            return []
        layouts = ["c" if shown.shape else "held" for shown in self.shown]
        return [
            (shown.row - first, shown.dtype, shown.shape, (shown.dtype, shown.shape, layout, self.device.name))
            for shown, layout in zip(self.shown, layouts, strict=True)
        ]

    def _ends(self) -> dict[tuple[Piece, int], list[int]]:
        """The rows of large results that are complete before the last step, by the step that is their last."""
        piece = self.parts[0]
        assert isinstance(piece, Piece)
        first = len(self.executable.program.parameters)
        large = {first + k for k, (_, size, _) in enumerate(self.results) if size >= APART}
        touched = ((k, touch) for k, step in enumerate(piece.steps) for touch in step.touches)
        last = {touch.row: k for k, touch in touched if touch.row in large and touch.writes}
        found: dict[tuple[Piece, int], list[int]] = {}
        for row, number in last.items():
            if number < len(piece.steps) - 1:
                found.setdefault((piece, number), []).append(row)
        return found
