"""The plan of a program: its steps, the buffer of each value, and the locations of temporaries and results.

A ``Plan`` is the same for all sizes of a program; with sizes it gives the ``Placement`` of temporaries, and for each result
its source, a ``ResultSource``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.codegen.cpu.llvm.program_interface import Driver, allocates, has_control_flow
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.interpret import reinterpreted
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.program import Alloc, Free, Launch, View, launch
from pullback.ir.shapes.extents import by_value_in, value_of
from pullback.runtime.program.arena import END, SMALL_ARENA, Life, ReusableBuffer, pack


@dataclass(frozen=True)
class Placement:
    """The locations of temporaries: at ``offsets`` of the arena, or of the result buffers that some are ``within``, which are
    filled only after the temporaries are dead. ``rows``: the row of each buffer in the table of addresses. ``lives`` are in
    instructions of the program; at most ``live_bytes`` are live at once."""

    offsets: Mapping[Value, int]
    within: Mapping[Value, Value]
    rows: Mapping[Value, int]
    lives: Mapping[Value, Life]
    arena_bytes: int
    live_bytes: int


@dataclass(frozen=True, slots=True)
class ResultSource:
    """The source of a result: an argument or a result buffer, at ``position``. ``is_whole``: the result is that array;
    otherwise it is its memory in another shape, or under another dtype. ``is_again``: an earlier result has that memory
    already."""

    from_arguments: bool
    position: int
    shape: tuple[int, ...]
    dtype: Any
    is_whole: bool
    is_again: bool

    def out_of(self, arguments: Sequence[Any], results: Sequence[Any]) -> Any:
        """Return the result, which shares no memory with another one."""
        array = (arguments if self.from_arguments else results)[self.position]
        if self.is_whole:
            return array.copy() if self.is_again else array
        if self.from_arguments:
            return np.array(reinterpreted(array, self.dtype, self.shape))
        array = array.reshape(self.shape)
        return array.copy() if self.is_again else array


@dataclass(frozen=True, slots=True)
class Creation:
    """A result that a program allocates itself: its position among the result buffers, its dtype, and the rank of its buffer.
    ``has_parts``: the last axis of the buffer holds the parts of complex numbers."""

    position: int
    dtype: Any
    rank: int
    has_parts: bool


class Plan:
    """The part of a plan that is the same for all sizes: the steps (a ``driver`` is one), the buffer of each value, and the
    result buffers; ``created`` are those that the program allocates itself."""

    def __init__(self, program: Function, driver: Driver | None = None) -> None:
        self.program = program
        self.parameter = {v: k for k, v in enumerate(program.parameters)}
        self.boxed = [
            (k, v.type.dtype.numpy) for k, v in enumerate(program.parameters) if isinstance(v.type, RefType) and not v.type.rank
        ]
        self.owner: dict[Value, Value] = {v: v for v in program.parameters}
        for i in walk(program.body):
            if isinstance(i.op, Alloc):
                self.owner[i.result] = i.result
            elif isinstance(i.op, View) and i.operands[0] in self.owner:
                self.owner[i.result] = self.owner[i.operands[0]]
        if driver is None:
            self.steps = [i for i in program.instructions if isinstance(i.op, Launch | Host)]
        else:
            params = {"kernel": driver.name, "sizes": driver.sizes, "limited": driver.limited}
            steps = {"failures": driver.failures, "hosts": driver.hosts}
            self.steps = [Instruction(launch, driver.buffers, (), {**params, **steps})]
        self.has_driver = has_control_flow(program)
        owners = [self.owner[v] for v in program.results]
        self.fresh = list(dict.fromkeys(o for o in owners if o not in self.parameter))
        self.shown = [program.results[owners.index(owner)] for owner in self.fresh]
        self.gives_all = self.fresh == owners
        self.created = [self._creation(v) for v in (() if driver is None else driver.created)]

    def _creation(self, buffer: Value) -> Creation:
        """Return how to create a result that the program allocates itself."""
        position = self.fresh.index(buffer)
        dtype = self.shown[position].type.dtype
        return Creation(position, dtype.numpy, buffer.type.rank, dtype.is_complex and not buffer.type.dtype.is_complex)

    def placement(self, sizes: Mapping[str, int]) -> Placement:
        """Return the locations of the temporaries of a program with these sizes."""
        count = len(self.program.parameters)
        rows = {**self.parameter, **{v: count + k for k, v in enumerate(self.fresh)}}
        lives: dict[Value, Life] = {}
        rooms: dict[Value, ReusableBuffer] = {}
        for position, i in enumerate(walk(self.program.body)):
            if isinstance(i.op, Alloc) and not (self.has_driver and allocates(i.result.type)):
                size = math.prod(shape_of(i.result, sizes)) * i.result.type.dtype.bytes
                if i.result not in rows:
                    lives[i.result] = Life(position, END, size)
                elif size >= SMALL_ARENA:
                    rooms[i.result] = ReusableBuffer(position, size)
            elif isinstance(i.op, Free) and self.owner.get(i.operands[0]) in lives:
                owner = self.owner[i.operands[0]]
                lives[owner] = replace(lives[owner], last=position)
        packing = pack(list(lives.values()), list(rooms.values()))
        results = list(rooms)
        offsets, within = {}, {}
        for v, (room, offset) in zip(lives, packing.places, strict=True):
            offsets[v] = offset
            rows[v] = count + len(self.fresh) if room is None else rows[results[room]]
            if room is not None:
                within[v] = results[room]
        return Placement(offsets, within, rows, lives, packing.arena_bytes, packing.live_bytes)

    def gives(self, sizes: Mapping[str, int], home: Mapping[int, int]) -> tuple[ResultSource, ...]:
        """Return the source of each result of a program with these sizes. Those of ``home`` have the memory of their
        parameters."""
        returned: set[Value] = set()
        sources = []
        for k, value in enumerate(self.program.results):
            owner = self.owner[value]
            shape = shape_of(value, sizes)
            from_arguments = owner in self.parameter
            position = self.parameter[owner] if from_arguments else self.fresh.index(owner)
            is_like = shape == shape_of(owner if from_arguments else self.shown[position], sizes)
            is_whole = is_like and value.type.dtype is (owner if from_arguments else value).type.dtype
            is_taken = from_arguments and k not in home and position in home.values()
            is_again = is_taken or (owner in returned and k not in home and not (from_arguments and value is owner))
            sources.append(ResultSource(from_arguments, position, shape, value.type.dtype, is_whole, is_again))
            returned.update([owner] if is_whole or not from_arguments else [])
        return tuple(sources)


def shape_of(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a value of a program with these sizes; extents by value, which the program computes, are 0."""
    return tuple(0 if by_value_in((e,)) else value_of(e, sizes) for e in value.type.shape)
