"""Loops and branches of a program on a CUDA device, written out.

A loop of known length and few steps is its turns, one after the other. Any other is turned by the host: its body finds the
position on the device, and each row of a sequence in a room, where it is brought first, and from where it goes back in the end.
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
from pullback.runtime.cuda.program.plan import Choice, Held, Part, States, Turns, Until
from pullback.runtime.cuda.program.planner import FOUND, WORD, Scope, Straight, Taken, Unfit, meet
from pullback.runtime.cuda.program.steps import Copied, Filled, Place, Touch, helper

MOST_STEPS = 4096
"""A loop of so many steps is written out."""
MOST_SEVERAL = 512
"""Of a longer one so many steps are one graph."""
MOST_STATES = 8


class Writer(Straight):
    """Writes a program with its sizes. Raises Unfit."""

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
                raise Unfit(i.op.name)

    # rows

    def row(self, i: Instruction) -> None:
        sequence, index = i.operands
        if not isinstance(sequence.type, RefType):
            raise Unfit("a stack")
        size, place = self.bytes_of(i.result), self.at(sequence)
        if index in self.known:
            self.env[i.result] = place[0], place[1] + self.known[index] * size
            return
        scope = next((s for s in self.scopes if s.position is index), None)
        if scope is None:
            raise Unfit("a row that nobody turns to")
        taken = scope.rows.get(place)
        if taken is None:
            if scope is not self.scopes[-1]:
                raise Unfit("a row that is met within another part")
            first = self.room(i, 0, size)
            taken = Taken(self.touch(sequence, False), Touch(self.room_row, first, first + size, True))
            self.move("pb_take", index, taken)
            for other in scope.rows.values():
                if meet(other.sequence, taken.sequence):
                    other.is_passed = taken.is_passed = True
            scope.rows[place] = taken
        self.env[i.result] = taken.room.row, taken.room.first

    def move(self, name: str, position: Value, taken: Taken) -> None:
        """Bring a row to its room, or back."""
        all_rows, room = taken.sequence, taken.room
        size, is_back = room.last - room.first, name == "pb_put"
        if not size:
            return
        arguments = [("P", self.at(position)), ("P", (all_rows.row, all_rows.first)), ("P", (room.row, room.first)), ("q", size)]
        touches = (
            self.touch(position, False),
            Touch(all_rows.row, all_rows.first, all_rows.last, is_back),
            Touch(room.row, room.first, room.last, not is_back),
        )
        self.add(helper(name, row_blocks(size), ROW_THREADS, arguments, touches))

    # loops and branches

    def fill(self, value: Value, number: int) -> None:
        self.add(Filled(self.at(value), I64.bytes, number, 1, None, (self.touch(value, True),)))

    def weight(self, block: Region) -> int | None:
        """How many steps a block is when it is written out; None if the host decides something in it."""
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

    def region(self, region: Region, carried: Sequence[Place]) -> tuple[Place, ...]:
        """Write a region whose references are at these places; where those are that it yields."""
        self.env.update(zip(region.parameters, carried, strict=True))
        self.block(region)
        return tuple(self.at(v) for v in region.results)

    def repeat(self, i: Instruction) -> None:
        (region,), length = i.regions, i.params["length"]
        index, *operands = i.operands
        count = value_of(length[0], self.sizes) if length else self.held(operands.pop(0))
        carried = tuple(self.at(v) for v in operands)
        weight = self.weight(region)
        if isinstance(count, int) and weight is not None and count * (weight + 1) <= MOST_STEPS:
            is_read = any(index in each.operands and not isinstance(each.op, Row) for each in walk(region))
            for k in reversed(range(count)) if i.params["reverse"] else range(count):
                self.known[index] = k
                if is_read:
                    self.fill(index, k)
                carried = self.region(region, carried)
            self.known.pop(index, None)
        else:
            carried = self.turned(i, count, weight, carried)
        self.env.update(zip(i.results, carried, strict=True))

    def turned(self, i: Instruction, count: int | Held, weight: int | None, carried: tuple[Place, ...]) -> tuple[Place, ...]:
        """A loop that the host turns. Where its results are."""
        self.collect()
        self.flush()
        index, is_reverse = i.operands[0], i.params["reverse"]
        states = States()
        met = [carried]
        while len(states.bodies) < len(met):
            with self.apart() as parts:
                following = self.turn(i.regions[0], index, -1 if is_reverse else 1, met[len(states.bodies)])
            self.follow(met, states, parts, following)
        several = None
        if weight is not None and not states.following[-1]:
            period = len(met)
            times = period * max(MOST_SEVERAL // (period * (weight + 1)), 1)
            if times > 1:
                with self.apart() as parts:
                    following = carried
                    for _ in range(times):
                        following = self.turn(i.regions[0], index, -1 if is_reverse else 1, following)
                several = times, parts
        self.parts.append(Turns(count, self.at(index), is_reverse, states, several))
        if isinstance(count, int):
            state = 0
            for _ in range(count):
                state = states.following[state]
            return met[state]
        states.endings += [self.ending(i, here, carried) for here in met]
        return carried

    def follow(self, met: list[tuple[Place, ...]], states: States, parts: list[Part], following: tuple[Place, ...]) -> None:
        """Keep the body of a state, and what it leaves as a state."""
        if following not in met:
            if len(met) >= MOST_STATES:
                raise Unfit("buffers that take too many turns")
            met.append(following)
        states.bodies.append(parts)
        states.following.append(met.index(following))

    def turn(self, region: Region, index: Value, step: int, carried: Sequence[Place]) -> tuple[Place, ...]:
        """One turn, in the open piece: the region, rows back, the first status, the next position."""
        scope = Scope(index, {})
        self.scopes.append(scope)
        found = self.region(region, carried)
        self.scopes.pop()
        for taken in scope.rows.values():
            if taken.is_written:
                if taken.is_passed:
                    raise Unfit("a sequence that is read beside a row of it that is written")
                self.move("pb_put", index, taken)
        self.collect()
        self.add(helper("pb_next", 1, 1, [("P", self.at(index)), ("q", step)], (self.touch(index, True),)))
        return found

    def collect(self) -> None:
        """Keep the first status that is set of those that were not looked at: turns to come use them again."""
        first, last = self.collected, len(self.failing)
        self.collected = last
        if first < last:
            begin, end = FOUND + WORD * first, FOUND + WORD * last
            arguments = [("P", (self.state_row, begin)), ("i", first), ("i", last - first), ("P", (self.state_row, 0))]
            touches = (Touch(self.state_row, begin, end, False), Touch(self.state_row, 0, FOUND, True))
            self.add(helper("pb_first", 1, 1, arguments, touches))

    def ending(self, i: Instruction, here: tuple[Place, ...], wanted: tuple[Place, ...]) -> list[Part]:
        """Parts that bring what a loop leaves to the places of its first state."""
        moved = [
            (a, b, self.bytes_of(v))
            for v, a, b in zip(i.results, here, wanted, strict=True)
            if a != b and v in self.used and self.bytes_of(v)
        ]
        through = bool({a for a, _, _ in moved} & {b for _, b, _ in moved})
        with self.apart() as parts:
            rooms = [(self.room_row, self.room(i, k, size)) for k, (_, _, size) in enumerate(moved)] if through else []
            pairs = [((a, r), (r, b)) for (a, b, _), r in zip(moved, rooms, strict=True)] if through else []
            order = [p for p, _ in pairs] + [p for _, p in pairs] if through else [(a, b) for a, b, _ in moved]
            sizes = [size for _, _, size in moved] * (2 if through else 1)
            for (source, target), size in zip(order, sizes, strict=True):
                self.add(Copied(source, target, size, (_span(source, size, False), _span(target, size, True))))
        return parts

    def repeat_while(self, i: Instruction) -> None:
        condition, body = i.regions
        index, *operands = i.operands
        carried = tuple(self.at(v) for v in operands)
        self.collect()
        self.flush()
        states, met, goes_on = States(), [carried], []

        def asked(here: Sequence[Place]) -> Held:
            (place,) = self.region(condition, here)
            return Held(place, condition.results[0].type.dtype.numpy)

        with self.apart() as first:
            self.scopes.append(Scope(index, {}))
            goes_on.append(asked(carried))
            self.scopes.pop()
        while len(states.bodies) < len(met):
            with self.apart() as parts:
                following = self.turn(body, index, 1, met[len(states.bodies)])
                self.scopes.append(Scope(index, {}))
                held = asked(following)
                self.scopes.pop()
            self.follow(met, states, parts, following)
            if len(met) > len(goes_on):
                goes_on.append(held)
        states.endings += [self.ending(i, here, carried) for here in met]
        self.parts.append(Until(self.at(index), first, goes_on, states))
        self.env.update(zip(i.results, carried, strict=True))

    def branch(self, i: Instruction) -> None:
        self.collect()
        self.flush()
        collected = self.collected
        index = self.held(i.operands[0])
        regions = []
        for region in i.regions:
            with self.apart() as parts:
                # No row is taken in what may not run.
                self.scopes.append(Scope(i.operands[0], {}))
                self.block(region)
                rows = self.scopes.pop().rows
            if rows:
                raise Unfit("a row that the number of a branch turns to")
            regions.append(parts)
        self.collected = collected
        self.parts.append(Choice(index, regions))


def _span(place: Place, size: int, writes: bool) -> Touch:
    return Touch(place[0], place[1], place[1] + size, writes)
