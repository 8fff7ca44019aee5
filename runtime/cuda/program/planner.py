"""Programs of a CUDA device written out: steps with places, in pieces, between what the host does."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.program import Alloc, Copy, Free, Launch, View
from pullback.runtime.cuda.libraries.calls import Called
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram
from pullback.runtime.cuda.program.plan import Held, OnHost, Part
from pullback.runtime.cuda.program.steps import END, WORKSPACE, Copied, Elsewhere, Filled, Patched, Piece, Place, Step, Touch
from pullback.runtime.program.plan import Plan

ALIGNMENT = 256
WORD = 4
FOUND = 8
"""Bytes before the statuses, in which the first that was set is kept."""


class Unfit(Exception):
    """A program that cannot be written out: what has no place before it runs, as a stack."""


@dataclass(slots=True, eq=False)
class Taken:
    """A row of a sequence in a loop that the host turns: where the turn has it, and whether it writes it."""

    sequence: Touch
    room: Touch
    is_written: bool = False
    is_passed: bool = False
    """Whether a step reads the sequence itself."""


@dataclass(frozen=True, eq=False)
class Scope:
    """A loop that the host turns: its position, and the rows that are taken by it."""

    position: Value
    rows: dict[Place, Taken]


class Straight:
    """Writes a program with its sizes, but for loops and branches. ``failing``: the launches with a status, in program order;
    ``room_bytes``: the bytes of temporaries. Raises Unfit."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        self.executable = executable
        self.instance = instance
        self.sizes = instance.sizes
        program = executable.program
        plan = Plan(program)
        plan.has_driver = False
        self.plan = plan
        self.places = plan.place(instance.sizes)
        self.count = len(program.parameters)
        self.room_row = self.count + len(plan.fresh)
        self.state_row = self.room_row + 1
        self.room_bytes = rounded(self.places.arena_bytes)
        self.failing: list[Instruction] = []
        self.collected = 0
        self.env: dict[Value, Place] = {v: (k, 0) for k, v in enumerate(program.parameters)}
        self.known: dict[Value, int] = {}
        self.scopes: list[Scope] = []
        self.parts: list[Part] = []
        self.steps: list[Step] = []
        self.rooms: dict[tuple[int, int], int] = {}
        regions = [region for i in walk(program.body) for region in i.regions]
        used = [*program.results, *(v for region in regions for v in region.results)]
        self.used = {*used, *(v for i in walk(program.body) if not isinstance(i.op, Free) for v in i.operands)}
        self.block(program.body)
        self.flush()
        if self.failing:
            self.clear()

    def clear(self) -> None:
        """Have statuses 0 first."""
        count = len(self.failing) + FOUND // WORD
        step = Filled((self.state_row, 0), WORD, 0, count, None, (Touch(self.state_row, 0, WORD * count, True),))
        first = self.parts[0]
        if isinstance(first, Piece):
            self.parts[0] = Piece((step, *first.steps), self.count)
        else:
            self.parts.insert(0, Piece((step,), self.count))

    # places

    def at(self, value: Value) -> Place:
        place = self.env.get(value)
        if place is None:
            raise Unfit(str(value.type))
        return place

    def position(self, value: Value) -> int:
        """The argument that a value is."""
        row, _ = self.at(value)
        if row >= self.count:
            raise Unfit("a number that is no argument")
        return row

    def bytes_of(self, value: Value) -> int:
        return math.prod(self.executable.shape(value, self.sizes)) * value.type.dtype.bytes

    def touch(self, value: Value, writes: bool) -> Touch:
        row, first = self.at(value)
        is_strided = isinstance(value.type, RefType) and value.type.layout != "c"
        return Touch(row, 0 if is_strided else first, END if is_strided else first + self.bytes_of(value), writes)

    def room(self, owner: Instruction, which: int, size: int) -> int:
        """The offset of memory for an instruction; whenever it runs, the same."""
        key = id(owner), which
        if key not in self.rooms:
            self.rooms[key] = self.room_bytes
            self.room_bytes += rounded(max(size, 1))
        return self.rooms[key]

    def held(self, value: Value) -> Held:
        dtype = value.type.dtype.numpy
        if isinstance(value.type, RefType):
            return Held(self.at(value), dtype)
        return Held(None, dtype, self.position(value))

    # steps

    def add(self, step: Step) -> None:
        self.mark(step)
        self.steps.append(step)

    def mark(self, step: Step) -> None:
        """See what a step does to rows that are taken, and to sequences past them."""
        if any(touch.writes and 0 <= touch.row < self.count for touch in step.touches):
            raise Unfit("an argument that is written")
        for scope in self.scopes:
            for taken in scope.rows.values():
                _mark(taken, step)

    def flush(self) -> None:
        if self.steps:
            self.parts.append(Piece(self.steps, self.count))
            self.steps = []

    @contextmanager
    def apart(self) -> Iterator[list[Part]]:
        """Parts of their own meanwhile."""
        kept = self.parts, self.steps
        found: list[Part] = []
        self.parts, self.steps = found, []
        yield found
        self.flush()
        self.parts, self.steps = kept

    def block(self, block: Region) -> None:
        for i in block.instructions:
            self.instruction(i)

    def instruction(self, i: Instruction) -> None:
        match i.op:
            case Launch():
                self.launch(i)
            case Alloc():
                row = self.places.rows.get(i.result)
                if row is None:
                    raise Unfit("a buffer without a life")
                self.env[i.result] = row, self.places.offsets.get(i.result, 0)
            case View():
                self.env[i.result] = self.at(i.operands[0])
            case Free():
                pass
            case Copy():
                self.copy(*i.operands)
            case Host():
                self.on_host(i)
            case _:
                self.flow(i)

    def flow(self, i: Instruction) -> None:
        """Write what is more than steps one after the other."""
        raise Unfit(i.op.name)

    def copy(self, source: Value, target: Value) -> None:
        to, size = self.touch(target, True), self.bytes_of(target)
        if not isinstance(source.type, RefType):
            dtype = source.type.dtype
            self.add(Filled(self.at(target), dtype.bytes, 0, 1, (self.position(source), dtype.name), (to,)))
        elif size and self.at(source) != self.at(target):
            self.add(Copied(self.at(source), self.at(target), size, (self.touch(source, False), to)))

    def launch(self, i: Instruction) -> None:
        name = i.params["kernel"]
        if name not in self.executable.kernels:
            self.on_host(i)
            return
        launch = self.executable.bound(self.instance, i)
        if launch.is_on_host:
            self.on_host(i)
            return
        written = self.executable.written[name]
        scratch = [(self.room(i, k, size), size) for k, (_, size) in enumerate(launch.scratch)]
        status = FOUND + WORD * len(self.failing)
        if launch.has_status:
            self.failing.append(i)
        for each in launch.starts:
            if isinstance(each, Called):
                self.called(i, each, written, scratch)
                continue
            pointers = [(at, *self.at(i.operands[position])) for at, position in each.pointers]
            pointers += [(at, self.room_row, scratch[which][0]) for at, which in each.scratch]
            pointers += [(at, self.state_row, status) for at in each.status]
            strides = tuple((at, self.position(i.operands[position]), axis) for at, position, axis in each.strides)
            scalars = tuple((at, self.position(i.operands[position]), dtype) for at, position, dtype in each.scalars)
            touches = [self.touch(i.operands[position], position in written) for _, position in each.pointers]
            rooms = [scratch[which] for _, which in each.scratch]
            touches += [Touch(self.room_row, first, first + size, True) for first, size in rooms]
            touches += [Touch(self.state_row, status, status + WORD, True) for _ in each.status]
            self.add(Patched(each, tuple(pointers), strides, scalars, tuple(touches)))

    def called(self, i: Instruction, each: Called, written: Container[int], scratch: Sequence[tuple[int, int]]) -> None:
        """A routine of a library; in a piece of its own if it may not be captured."""
        places = [self.at(i.operands[k]) for k in each.operands]
        places += [(self.room_row, scratch[k][0]) for k in each.scratch]
        touches = [self.touch(i.operands[k], k in written) for k in each.operands]
        touches += [Touch(self.room_row, first, first + size, True) for first, size in (scratch[k] for k in each.scratch)]
        if not each.captures:
            self.flush()
        self.add(Elsewhere(each, tuple(places), (*touches, Touch(WORKSPACE, 0, 1, True))))
        if not each.captures:
            self.flush()

    def on_host(self, i: Instruction) -> None:
        self.flush()
        are_refs = [isinstance(v.type, RefType) for v in i.operands]
        places = tuple(self.at(v) if is_ref else None for v, is_ref in zip(i.operands, are_refs, strict=True))
        positions = tuple(-1 if is_ref else self.position(v) for v, is_ref in zip(i.operands, are_refs, strict=True))
        # What it reads and writes of rows that are taken counts as what a step does.
        touches = tuple(self.touch(v, True) for v in i.operands if self.at(v)[0] >= self.count)
        self.mark(Copied((0, 0), (0, 0), 0, touches))
        self.parts.append(OnHost(i, places, positions))


def _mark(taken: Taken, step: Step) -> None:
    """What a step does to a row that is taken, or to the sequence past it."""
    for touch in step.touches:
        if touch.writes and meet(touch, taken.room):
            taken.is_written = True
        if meet(touch, taken.sequence):
            if touch.writes:
                raise Unfit("a sequence that is written beside a row of it")
            taken.is_passed = True


def meet(a: Touch, b: Touch) -> bool:
    return a.row == b.row and a.first < b.last and b.first < a.last


def rounded(size: int) -> int:
    """Bytes as they are taken of the memory of temporaries."""
    return -(-size // ALIGNMENT) * ALIGNMENT
