"""Planned programs on a CUDA device: their parts, with everything that is the same in every call.

The locations of buffers are planned once for each set of sizes: one block of the device's pool holds all temporaries, the
kernels' scratch buffers and the statuses.
"""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.runtime.cuda.device.memory import Block
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram
from pullback.runtime.cuda.program.plan import segments_of
from pullback.runtime.cuda.program.plan_control_flow import Planner
from pullback.runtime.cuda.program.planner import FIRST_STATUS_BYTES, WORD, NotPlannable, rounded
from pullback.runtime.cuda.program.steps import FillStep, LaunchStep, Segment

CONCURRENT_COPY_BYTES = 1 << 18
"""The bytes from which an array is copied concurrently with the device's work."""
KEYS = {"i": "q", "u": "Q"}
"""The ``struct`` letter that packs a scalar so that different scalars give different bytes, by the first letter of its dtype."""


@dataclass(frozen=True, slots=True, eq=False)
class ResultRow:
    """A result: its row of the table of addresses, and its type."""

    row: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Layout:
    """A planned program with its sizes: its parts, the rows of their addresses, and its results. ``ran``: segments that have
    run; ``is_repeatable``: whether calls launch graphs. The constructor raises NotPlannable."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        self.executable = executable
        self.device = executable.device
        self.sizes = instance.sizes
        written = Planner(executable, instance)
        self.parts = written.parts
        self.failing = written.failing
        self.plan = written.plan
        self.results = tuple(self._described(v) for v in self.plan.shown)
        self.state_row, self.state_at = written.state_row, rounded(written.arena_bytes)
        self.state_bytes = FIRST_STATUS_BYTES + WORD * len(self.failing) if self.failing else 0
        self.arena_bytes = self.state_at + self.state_bytes
        self.result_rows = [self._shown(v, written) for v in executable.program.results]
        steps = [each for piece in segments_of(self.parts) for each in piece.steps]
        launches = [each for each in steps if isinstance(each, LaunchStep)]
        scalars = {(position, dtype) for each in launches for _, position, dtype in each.scalars}
        self.scalars = sorted({*scalars, *(each.scalar for each in steps if isinstance(each, FillStep) and each.scalar)})
        self.strided = sorted({position for each in launches for _, position, _ in each.strides})
        self.is_graph = len(self.parts) == 1 and isinstance(self.parts[0], Segment)
        self.is_repeatable = any(piece.is_captured for piece in segments_of(self.parts))
        self.is_exclusive = bool(self.failing) or not self.is_graph
        self.packer = struct.Struct("".join(KEYS.get(dtype[0], "?" if dtype == "bool" else "d") for _, dtype in self.scalars))
        parameters = executable.program.parameters
        self.arrays = [k for k, v in enumerate(parameters) if isinstance(v.type, RefType)]
        self.fresh = self._fresh() if self.is_graph and self.arrays and not self.is_exclusive and not self.strided else []
        self.last_writes = self._ends() if self.is_graph else {}
        self.ran: set[Segment] = set()
        self.named = executable.title, "a kernel"
        self.temporaries = f"the temporaries of {executable.title}"

    def take_arena(self) -> Block | None:
        """Return memory for the temporaries of a call, None if there are none. The context must be current."""
        return self.device.take(self.arena_bytes, self.temporaries) if self.arena_bytes else None

    def _described(self, value: Value) -> tuple[int, int, str]:
        """Return the bytes of a result's block and of the result, and its description in errors."""
        shape, dtype = self.executable.shape(value, self.sizes), value.type.dtype
        text = f"{dtype}[{','.join(map(str, shape))}]"
        size = math.prod(shape) * dtype.bytes
        return self.device.pool.rounded(size), size, f"result {value.name or 'without name'} of {self.executable.title} ({text})"

    def _shown(self, value: Value, written: Planner) -> ResultRow:
        row, shift = written.at(value)
        if shift or row >= written.arena_row:
            raise NotPlannable("a result within other memory")
        return ResultRow(row, value.type.dtype.numpy, self.executable.shape(value, self.sizes))

    def _fresh(self) -> list[tuple[int, np.dtype[Any], tuple[int, ...], tuple[Any, ...]]]:
        """Return for each result its buffer, its type, and its key as an argument; empty if a result is an argument."""
        first = len(self.executable.program.parameters)
        if any(shown.row < first for shown in self.result_rows):
            return []
        layouts = ["c" if shown.shape else "held" for shown in self.result_rows]
        return [
            (shown.row - first, shown.dtype, shown.shape, (shown.dtype, shown.shape, layout, self.device.name))
            for shown, layout in zip(self.result_rows, layouts, strict=True)
        ]

    def _ends(self) -> dict[tuple[Segment, int], list[int]]:
        """Return the rows of large results that are complete before the last step, by the step that writes them last."""
        piece = self.parts[0]
        assert isinstance(piece, Segment)
        first = len(self.executable.program.parameters)
        large = {first + k for k, (_, size, _) in enumerate(self.results) if size >= CONCURRENT_COPY_BYTES}
        touched = ((k, touch) for k, step in enumerate(piece.steps) for touch in step.accesses)
        last = {touch.row: k for k, touch in touched if touch.row in large and touch.writes}
        rows_by_step: dict[tuple[Segment, int], list[int]] = {}
        for row, index in last.items():
            if index < len(piece.steps) - 1:
                rows_by_step.setdefault((piece, index), []).append(row)
        return rows_by_step
