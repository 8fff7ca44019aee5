"""Plan the loops and branches of a program on a CUDA device.

A loop of known length and few steps is unrolled. Any other is iterated by the host: its body reads the position on the device,
and each row of a sequence is copied to a fixed buffer first, and copied back at the end if it was written.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cuda.source.graph_loops import ROW_THREADS, row_blocks
from pullback.ir.core.structure import Block as Region
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.core.types import I64, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.program import Alloc, Branch, Copy, Free, Launch, Repeat, RepeatWhile, Row, View
from pullback.ir.shapes.extents import value_of
from pullback.runtime.cuda.program.plan import Conditional, CountedLoop, HostScalar, LoopStates, Part, WhileLoop
from pullback.runtime.cuda.program.planner import (
    FIRST_STATUS_BYTES,
    WORD,
    CopiedRow,
    HostLoop,
    NotPlannable,
    StraightLinePlanner,
    overlap,
)
from pullback.runtime.cuda.program.steps import Access, CopyStep, FillStep, Location, helper

MAX_UNROLLED_STEPS = 4096
"""The largest number of steps of a loop that is unrolled."""
MAX_GRAPH_STEPS = 512
"""The largest number of steps of a longer loop that form one graph."""
MAX_STATES = 8
"""The largest number of states of a loop."""


class Planner(StraightLinePlanner):
    """Plans a program with its sizes, loops and branches included. The constructor raises NotPlannable."""

    def flow(self, i: Instruction) -> None:
        match i.op:
            case Row():
                self.row(i)
            case Repeat():
                self.repeat(i)
            case RepeatWhile():
                self.repeat_while(i)
            case Branch():
                self.branch(i)
            case _:
                raise NotPlannable(i.op.name)

    # rows

    def row(self, i: Instruction) -> None:
        sequence, index = i.operands
        if not isinstance(sequence.type, RefType):
            raise NotPlannable("a stack")
        size, location = self.bytes_of(i.result), self.at(sequence)
        if index in self.known:
            self.env[i.result] = location[0], location[1] + self.known[index] * size
            return
        scope = next((s for s in self.scopes if s.position is index), None)
        if scope is None:
            raise NotPlannable("a row that nobody turns to")
        taken = scope.rows.get(location)
        if taken is None:
            if scope is not self.scopes[-1]:
                raise NotPlannable("a row that is met within another part")
            first = self.scratch_offset(i, 0, size)
            taken = CopiedRow(self.access(sequence, False), Access(self.arena_row, first, first + size, True))
            self.move("pb_take", index, taken)
            for other in scope.rows.values():
                if overlap(other.sequence, taken.sequence):
                    other.is_sequence_accessed = taken.is_sequence_accessed = True
            scope.rows[location] = taken
        self.env[i.result] = taken.buffer.row, taken.buffer.first

    def move(self, name: str, position: Value, taken: CopiedRow) -> None:
        """Add the copy of a row to its buffer, or back."""
        all_rows, room = taken.sequence, taken.buffer
        size, is_back = room.last - room.first, name == "pb_put"
        if not size:
            return
        arguments = [("P", self.at(position)), ("P", (all_rows.row, all_rows.first)), ("P", (room.row, room.first)), ("q", size)]
        touches = (
            self.access(position, False),
            Access(all_rows.row, all_rows.first, all_rows.last, is_back),
            Access(room.row, room.first, room.last, not is_back),
        )
        self.add(helper(name, row_blocks(size), ROW_THREADS, arguments, touches))

    # loops and branches

    def fill(self, value: Value, constant: int) -> None:
        self.add(FillStep(self.at(value), I64.bytes, constant, 1, None, (self.access(value, True),)))

    def weight(self, block: Region) -> int | None:
        """Return the number of steps of a block when unrolled; None if the host decides something in it."""
        total = 0
        for i in block.instructions:
            match i.op:
                case Launch():
                    if i.params["kernel"] not in self.executable.kernels:
                        return None
                    bound = self.executable.bound(self.instance, i)
                    if bound.is_on_host:
                        return None
                    total += max(len(bound.starts), 1)
                case Copy():
                    total += 1
                case Repeat():
                    inner = self.weight(i.regions[0]) if i.params["length"] else None
                    if inner is None:
                        return None
                    total += value_of(i.params["length"][0], self.sizes) * (inner + 1)
                case Alloc() | View() | Free() | Row():
                    pass
                case _:
                    return None
        return total

    def region(self, region: Region, carried: Sequence[Location]) -> tuple[Location, ...]:
        """Plan a region whose references have these locations; return the locations of its results."""
        self.env.update(zip(region.parameters, carried, strict=True))
        self.block(region)
        return tuple(self.at(v) for v in region.results)

    def repeat(self, i: Instruction) -> None:
        (region,), length = i.regions, i.params["length"]
        index, *operands = i.operands
        count = value_of(length[0], self.sizes) if length else self.held(operands.pop(0))
        carried = tuple(self.at(v) for v in operands)
        weight = self.weight(region)
        if isinstance(count, int) and weight is not None and count * (weight + 1) <= MAX_UNROLLED_STEPS:
            is_read = any(index in each.operands and not isinstance(each.op, Row) for each in walk(region))
            for k in reversed(range(count)) if i.params["reverse"] else range(count):
                self.known[index] = k
                if is_read:
                    self.fill(index, k)
                carried = self.region(region, carried)
            self.known.pop(index, None)
        else:
            carried = self.host_loop(i, count, weight, carried)
        self.env.update(zip(i.results, carried, strict=True))

    def host_loop(
        self, i: Instruction, count: int | HostScalar, weight: int | None, carried: tuple[Location, ...]
    ) -> tuple[Location, ...]:
        """Plan a loop that the host iterates; return the locations of its results."""
        self.collect_statuses()
        self.flush()
        index, is_reverse = i.operands[0], i.params["reverse"]
        states = LoopStates()
        met = [carried]
        while len(states.bodies) < len(met):
            with self.separate_parts() as parts:
                following = self.iteration(i.regions[0], index, -1 if is_reverse else 1, met[len(states.bodies)])
            self.follow(met, states, parts, following)
        unrolled = None
        if weight is not None and not states.following[-1]:
            period = len(met)
            times = period * max(MAX_GRAPH_STEPS // (period * (weight + 1)), 1)
            if times > 1:
                with self.separate_parts() as parts:
                    following = carried
                    for _ in range(times):
                        following = self.iteration(i.regions[0], index, -1 if is_reverse else 1, following)
                unrolled = times, parts
        self.parts.append(CountedLoop(count, self.at(index), is_reverse, states, unrolled))
        if isinstance(count, int):
            state = 0
            for _ in range(count):
                state = states.following[state]
            return met[state]
        states.endings += [self.ending(i, locations, carried) for locations in met]
        return carried

    def follow(
        self, met: list[tuple[Location, ...]], states: LoopStates, parts: list[Part], following: tuple[Location, ...]
    ) -> None:
        """Add the body of a state, and the state that follows it."""
        if following not in met:
            if len(met) >= MAX_STATES:
                raise NotPlannable("buffers that take too many turns")
            met.append(following)
        states.bodies.append(parts)
        states.following.append(met.index(following))

    def iteration(self, region: Region, index: Value, step: int, carried: Sequence[Location]) -> tuple[Location, ...]:
        """Plan one iteration in the open segment: the region, copies of rows back, the first status, the next position."""
        scope = HostLoop(index, {})
        self.scopes.append(scope)
        results = self.region(region, carried)
        self.scopes.pop()
        for taken in scope.rows.values():
            if taken.is_written:
                if taken.is_sequence_accessed:
                    raise NotPlannable("a sequence that is read beside a row of it that is written")
                self.move("pb_put", index, taken)
        self.collect_statuses()
        self.add(helper("pb_next", 1, 1, [("P", self.at(index)), ("q", step)], (self.access(index, True),)))
        return results

    def collect_statuses(self) -> None:
        """Keep the first set status of the launches not collected yet, before later iterations reuse their statuses."""
        first, last = self.collected, len(self.failing)
        self.collected = last
        if first < last:
            begin, end = FIRST_STATUS_BYTES + WORD * first, FIRST_STATUS_BYTES + WORD * last
            arguments = [("P", (self.state_row, begin)), ("i", first), ("i", last - first), ("P", (self.state_row, 0))]
            touches = (Access(self.state_row, begin, end, False), Access(self.state_row, 0, FIRST_STATUS_BYTES, True))
            self.add(helper("pb_first", 1, 1, arguments, touches))

    def ending(self, i: Instruction, current: tuple[Location, ...], wanted: tuple[Location, ...]) -> list[Part]:
        """Return parts that copy the results of a loop to their locations in its first state."""
        moved = [
            (a, b, self.bytes_of(v))
            for v, a, b in zip(i.results, current, wanted, strict=True)
            if a != b and v in self.used and self.bytes_of(v)
        ]
        through = bool({a for a, _, _ in moved} & {b for _, b, _ in moved})
        with self.separate_parts() as parts:
            rooms = [(self.arena_row, self.scratch_offset(i, k, size)) for k, (_, _, size) in enumerate(moved)] if through else []
            pairs = [((a, r), (r, b)) for (a, b, _), r in zip(moved, rooms, strict=True)] if through else []
            order = [p for p, _ in pairs] + [p for _, p in pairs] if through else [(a, b) for a, b, _ in moved]
            sizes = [size for _, _, size in moved] * (2 if through else 1)
            for (source, target), size in zip(order, sizes, strict=True):
                self.add(CopyStep(source, target, size, (_access(source, size, False), _access(target, size, True))))
        return parts

    def repeat_while(self, i: Instruction) -> None:
        condition, body = i.regions
        index, *operands = i.operands
        carried = tuple(self.at(v) for v in operands)
        self.collect_statuses()
        self.flush()
        states, met, conditions = LoopStates(), [carried], []

        def condition_of(locations: Sequence[Location]) -> HostScalar:
            (location,) = self.region(condition, locations)
            return HostScalar(location, condition.results[0].type.dtype.numpy)

        with self.separate_parts() as first:
            self.scopes.append(HostLoop(index, {}))
            conditions.append(condition_of(carried))
            self.scopes.pop()
        while len(states.bodies) < len(met):
            with self.separate_parts() as parts:
                following = self.iteration(body, index, 1, met[len(states.bodies)])
                self.scopes.append(HostLoop(index, {}))
                held = condition_of(following)
                self.scopes.pop()
            self.follow(met, states, parts, following)
            if len(met) > len(conditions):
                conditions.append(held)
        states.endings += [self.ending(i, buffers, carried) for buffers in met]
        self.parts.append(WhileLoop(self.at(index), first, conditions, states))
        self.env.update(zip(i.results, carried, strict=True))

    def branch(self, i: Instruction) -> None:
        self.collect_statuses()
        self.flush()
        collected = self.collected
        index = self.held(i.operands[0])
        regions = []
        for region in i.regions:
            with self.separate_parts() as parts:
                # No row is copied in a region that may not run.
                self.scopes.append(HostLoop(i.operands[0], {}))
                self.block(region)
                rows = self.scopes.pop().rows
            if rows:
                raise NotPlannable("a row that the number of a branch turns to")
            regions.append(parts)
        self.collected = collected
        self.parts.append(Conditional(index, regions))


def _access(location: Location, size: int, writes: bool) -> Access:
    return Access(location[0], location[1], location[1] + size, writes)
