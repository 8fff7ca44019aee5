"""Plan a program for a CUDA device: steps with fixed locations, grouped in segments between host steps."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.program import Alloc, Copy, Free, Launch, View
from pullback.runtime.cuda.libraries.calls import LibraryCall
from pullback.runtime.cuda.program.loaded_program import LoadedProgram, SizedProgram
from pullback.runtime.cuda.program.plan import HostScalar, HostStep, Part
from pullback.runtime.cuda.program.steps import (
    END,
    WORKSPACE,
    Access,
    CopyStep,
    FillStep,
    LaunchStep,
    LibraryStep,
    Location,
    Segment,
    Step,
)
from pullback.runtime.program.plan import Plan

ALIGNMENT = 256
"""The alignment of temporaries, in bytes."""
WORD = 4
"""The bytes of a status."""
FIRST_STATUS_BYTES = 8
"""The bytes before the statuses, which hold the first status that was set."""


class NotPlannable(Exception):
    """Raised for a program that cannot be planned because a value has no location before it runs, such as a stack."""


@dataclass(slots=True, eq=False)
class CopiedRow:
    """A row of a sequence that an iteration of a host loop copies to a fixed ``buffer``, and whether the iteration writes it."""

    sequence: Access
    buffer: Access
    is_written: bool = False
    is_sequence_accessed: bool = False
    """Whether a step accesses the sequence itself."""


@dataclass(frozen=True, eq=False)
class HostLoop:
    """A host loop: its position, and the rows that its iteration has copied."""

    position: Value
    rows: dict[Location, CopiedRow]


class StraightLinePlanner:
    """Plans a program with its sizes, except loops and branches. ``failing``: the launches with a status, in program order;
    ``arena_bytes``: the bytes of temporaries. The constructor raises NotPlannable."""

    def __init__(self, executable: LoadedProgram, instance: SizedProgram) -> None:
        self.executable = executable
        self.instance = instance
        self.sizes = instance.sizes
        program = executable.program
        plan = Plan(program)
        plan.has_driver = False
        self.plan = plan
        self.placement = plan.placement(instance.sizes)
        self.count = len(program.parameters)
        self.arena_row = self.count + len(plan.fresh)
        self.state_row = self.arena_row + 1
        self.arena_bytes = rounded(self.placement.arena_bytes)
        self.failing: list[Instruction] = []
        self.collected = 0
        self.env: dict[Value, Location] = {v: (k, 0) for k, v in enumerate(program.parameters)}
        self.known: dict[Value, int] = {}
        self.scopes: list[HostLoop] = []
        self.parts: list[Part] = []
        self.steps: list[Step] = []
        self.scratch_offsets: dict[tuple[int, int], int] = {}
        regions = [region for i in walk(program.body) for region in i.regions]
        used = [*program.results, *(v for region in regions for v in region.results)]
        self.used = {*used, *(v for i in walk(program.body) if not isinstance(i.op, Free) for v in i.operands)}
        self.block(program.body)
        self.flush()
        if self.failing:
            self.clear_statuses()

    def clear_statuses(self) -> None:
        """Add a step that clears the statuses before all others."""
        count = len(self.failing) + FIRST_STATUS_BYTES // WORD
        step = FillStep((self.state_row, 0), WORD, 0, count, None, (Access(self.state_row, 0, WORD * count, True),))
        first = self.parts[0]
        if isinstance(first, Segment):
            self.parts[0] = Segment((step, *first.steps), self.count)
        else:
            self.parts.insert(0, Segment((step,), self.count))

    # locations

    def at(self, value: Value) -> Location:
        location = self.env.get(value)
        if location is None:
            raise NotPlannable(str(value.type))
        return location

    def position(self, value: Value) -> int:
        """Return the index of the argument that a value is. Raises NotPlannable."""
        row, _ = self.at(value)
        if row >= self.count:
            raise NotPlannable("a number that is no argument")
        return row

    def bytes_of(self, value: Value) -> int:
        return math.prod(self.executable.shape(value, self.sizes)) * value.type.dtype.bytes

    def access(self, value: Value, writes: bool) -> Access:
        row, first = self.at(value)
        is_strided = isinstance(value.type, RefType) and value.type.layout != "c"
        return Access(row, 0 if is_strided else first, END if is_strided else first + self.bytes_of(value), writes)

    def scratch_offset(self, owner: Instruction, which: int, size: int) -> int:
        """Return the offset of the fixed memory of an instruction, the same whenever it runs."""
        key = id(owner), which
        if key not in self.scratch_offsets:
            self.scratch_offsets[key] = self.arena_bytes
            self.arena_bytes += rounded(max(size, 1))
        return self.scratch_offsets[key]

    def held(self, value: Value) -> HostScalar:
        dtype = value.type.dtype.numpy
        if isinstance(value.type, RefType):
            return HostScalar(self.at(value), dtype)
        return HostScalar(None, dtype, self.position(value))

    # steps

    def add(self, step: Step) -> None:
        self.mark(step)
        self.steps.append(step)

    def mark(self, step: Step) -> None:
        """Record what a step does to copied rows, and to their sequences."""
        if any(touch.writes and 0 <= touch.row < self.count for touch in step.accesses):
            raise NotPlannable("an argument that is written")
        for scope in self.scopes:
            for taken in scope.rows.values():
                _mark(taken, step)

    def flush(self) -> None:
        if self.steps:
            self.parts.append(Segment(self.steps, self.count))
            self.steps = []

    @contextmanager
    def separate_parts(self) -> Iterator[list[Part]]:
        """Collect the parts added within the context in a separate list, which is yielded."""
        kept = self.parts, self.steps
        parts: list[Part] = []
        self.parts, self.steps = parts, []
        yield parts
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
                row = self.placement.rows.get(i.result)
                if row is None:
                    raise NotPlannable("a buffer without a life")
                self.env[i.result] = row, self.placement.offsets.get(i.result, 0)
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
        """Plan an instruction that is not a straight-line step."""
        raise NotPlannable(i.op.name)

    def copy(self, source: Value, target: Value) -> None:
        to, size = self.access(target, True), self.bytes_of(target)
        if not isinstance(source.type, RefType):
            dtype = source.type.dtype
            self.add(FillStep(self.at(target), dtype.bytes, 0, 1, (self.position(source), dtype.name), (to,)))
        elif size and self.at(source) != self.at(target):
            self.add(CopyStep(self.at(source), self.at(target), size, (self.access(source, False), to)))

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
        scratch = [(self.scratch_offset(i, k, size), size) for k, (_, size) in enumerate(launch.scratch)]
        status = FIRST_STATUS_BYTES + WORD * len(self.failing)
        if launch.has_status:
            self.failing.append(i)
        for each in launch.starts:
            if isinstance(each, LibraryCall):
                self.add_library_call(i, each, written, scratch)
                continue
            pointers = [(at, *self.at(i.operands[position])) for at, position in each.pointers]
            pointers += [(at, self.arena_row, scratch[which][0]) for at, which in each.scratch]
            pointers += [(at, self.state_row, status) for at in each.status]
            strides = tuple((at, self.position(i.operands[position]), axis) for at, position, axis in each.strides)
            scalars = tuple((at, self.position(i.operands[position]), dtype) for at, position, dtype in each.scalars)
            touches = [self.access(i.operands[position], position in written) for _, position in each.pointers]
            rooms = [scratch[which] for _, which in each.scratch]
            touches += [Access(self.arena_row, first, first + size, True) for first, size in rooms]
            touches += [Access(self.state_row, status, status + WORD, True) for _ in each.status]
            self.add(LaunchStep(each, tuple(pointers), strides, scalars, tuple(touches)))

    def add_library_call(
        self, i: Instruction, call: LibraryCall, written: Container[int], scratch: Sequence[tuple[int, int]]
    ) -> None:
        """Add a library call, in a segment of its own if it cannot be captured."""
        locations = [self.at(i.operands[k]) for k in call.operands]
        locations += [(self.arena_row, scratch[k][0]) for k in call.scratch]
        touches = [self.access(i.operands[k], k in written) for k in call.operands]
        touches += [Access(self.arena_row, first, first + size, True) for first, size in (scratch[k] for k in call.scratch)]
        if not call.captures:
            self.flush()
        self.add(LibraryStep(call, tuple(locations), (*touches, Access(WORKSPACE, 0, 1, True))))
        if not call.captures:
            self.flush()

    def on_host(self, i: Instruction) -> None:
        self.flush()
        are_refs = [isinstance(v.type, RefType) for v in i.operands]
        locations = tuple(self.at(v) if is_ref else None for v, is_ref in zip(i.operands, are_refs, strict=True))
        positions = tuple(-1 if is_ref else self.position(v) for v, is_ref in zip(i.operands, are_refs, strict=True))
        # Its accesses to copied rows count like those of a step.
        touches = tuple(self.access(v, True) for v in i.operands if self.at(v)[0] >= self.count)
        self.mark(CopyStep((0, 0), (0, 0), 0, touches))
        self.parts.append(HostStep(i, locations, positions))


def _mark(taken: CopiedRow, step: Step) -> None:
    """Record what a step does to a copied row, or to its sequence. Raises NotPlannable."""
    for touch in step.accesses:
        if touch.writes and overlap(touch, taken.buffer):
            taken.is_written = True
        if overlap(touch, taken.sequence):
            if touch.writes:
                raise NotPlannable("a sequence that is written beside a row of it")
            taken.is_sequence_accessed = True


def overlap(a: Access, b: Access) -> bool:
    return a.row == b.row and a.first < b.last and b.first < a.last


def rounded(size: int) -> int:
    """Return the bytes that a buffer takes of the temporaries."""
    return -(-size // ALIGNMENT) * ALIGNMENT
