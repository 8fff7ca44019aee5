"""A loop of a program: its body is traced once, with the variables that it changes as the carry."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, scalar
from pullback.ir.shapes.by_value import is_value_size
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, cast, number_of_extent
from pullback.tracer.arrays.python_ints import require_room
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.tree import bare, flatten
from pullback.tracer.arrays.views import write_back
from pullback.tracer.names.places import NewVariables, refuse_absent
from pullback.tracer.statements.aliases import LoopAliases, Position, are_exchanged, chosen, forget_all, refuse_read, selected
from pullback.tracer.statements.blocks import MOST_JOINED, OTHER_PLACES, BlockRegion, Ran, Steps, attempt, driven
from pullback.tracer.statements.branches import Block, aliases_in, branch, if_, share, share_made
from pullback.tracer.statements.choices import narrowed, truth_of
from pullback.tracer.statements.completions import (
    BREAK,
    CONTINUE,
    NEXT,
    RAISE,
    RETURN,
    Completion,
    code_of,
    is_code,
    possible_codes,
)
from pullback.tracer.statements.containers import (
    Saved,
    containers_in,
    dereferenced,
    keep,
    refuse_changed,
    refuse_objects,
    shares_containers,
)
from pullback.tracer.statements.counting import (
    MOST_ATTEMPTS,
    Lengthens,
    Limits,
    Room,
    Signal,
    provide_counted,
    provide_rooms,
)
from pullback.tracer.statements.earlier_traces import EarlierCarry, earlier, kind_of, note_loop, takes_notes
from pullback.tracer.statements.growing import GrowingList, Grows, capacity_of
from pullback.tracer.statements.items import Items
from pullback.tracer.statements.joins import is_inner, placeholder
from pullback.tracer.statements.rebound import (
    OTHER_VALUE,
    Packed,
    Rebinds,
    Watched,
    base_capacity,
    fits,
    fix,
    is_rebound,
    packed,
    refuse_other_names,
    unpacked,
)
from pullback.tracer.statements.structures import merged, restructured
from pullback.tracer.statements.try_statements import iteration
from pullback.tracer.statements.variables import UNBOUND, Variables, arrays_in, is_same, note_partly_bound
from pullback.tracer.transforms.branches import Carry, RowRoom, changing_axis
from pullback.tracer.transforms.region import emit_regions, rebuild
from pullback.tracer.user_code.control_flow import note_statement
from pullback.tracer.user_code.errors import TraceError

Held = dict[Position, list[TracedArray]]


@dataclass(frozen=True, kw_only=True)
class LoopStatement:
    """A loop of the user's.

    ``body`` and ``orelse`` are its blocks, ``test`` the condition of a ``while`` loop, ``items`` what a ``for`` loop goes over,
    from item ``first`` on. ``names``: the variables that it binds, of which the ``temporary`` ones are not carried; ``live``:
    those that may be unbound, and are read later. ``variables`` returns the variables, by default those of the blocks.
    """

    body: Callable[..., Any]
    names: Sequence[str]
    temporary: Sequence[str]
    live: Sequence[str] = ()
    orelse: Block | None = None
    test: Callable[[], Any] | None = None
    items: Items | None = None
    first: int = 0
    variables: Callable[[], Variables] | None = None

    @property
    def has_bound(self) -> bool:
        """Whether there is a bound of the trip count."""
        return self.items is not None and not self.items.is_endless

    def start_at(self, first: int) -> LoopStatement:
        """Return the loop without its first iterations."""
        return replace(self, first=first)

    def read_variables(self) -> Variables:
        """Return the variables, as they are before the loop."""
        if self.variables is not None:
            return self.variables()
        sequence = None if self.items is None else self.items.at
        blocks = [b for b in (self.body, self.orelse, self.test) if b is not None]
        return Variables(self.names, blocks, (self.body, self.test, sequence))

    def run(self, truth: Any, ended: Completion | None) -> Completion | None:
        """Emit the loop, and return how it ended. ``truth``: of the condition before the first iteration, None if ``ended``, the
        end of the iteration before it, decides."""
        return driven(self.steps(truth, ended), self.iteration)

    def iteration(self, *item: Any) -> Any:
        """Run the body, and return how it ended."""
        return iteration(self.body, self.names, self.temporary, self.live, *item)

    def steps(self, truth: Any, ended: Completion | None) -> Steps[Completion | None]:
        """Emit the loop, where the body runs between the steps. It is traced again if places outside turn out to be variables."""
        statements = frame_of().root.statements
        count = len(statements)
        for _ in range(MOST_JOINED):
            try:
                return (yield from self.sized(truth, ended))
            except NewVariables:
                if frame_of().is_conditional:
                    raise
                del statements[count:]
        raise TraceError(OTHER_PLACES)

    def sized(self, truth: Any, ended: Completion | None) -> Steps[Completion | None]:
        """Emit the loop, with room for the lists that iterations make longer."""
        statements = frame_of().root.statements
        count = len(statements)
        room = LoopRoom(self)
        for _ in range(MOST_ATTEMPTS):
            try:
                rolled = yield from self.traced(room, truth, ended)
                return finished(rolled.ended, self.orelse, self.names)
            except (Rebinds, Lengthens) as signal:
                room.provide_for_rows(signal, truth, ended)
            except Grows as grows:
                room.provide(grows, truth, ended)
            del statements[count:]
        raise TraceError("the lists of a loop on traced values grow in each trace; write into arrays")

    def traced(self, room: LoopRoom, truth: Any, ended: Completion | None) -> Steps[Rolled]:
        """Trace the body until its carry is known, and emit the loop; return the last trace. Raises Grows and Rebinds."""
        rolled = Rolled(self, room)
        noted = rolled.earlier_carry()
        if noted is not None:
            with attempt():
                yield from rolled.roll(truth, ended, noted)
                return rolled
            rolled = Rolled(self, room)
        yield from rolled.roll(truth, ended)
        return rolled


class LoopRoom:
    """The room that the traces of a loop so far found to be necessary for the lists that its iterations make longer.

    ``sized``: the ids of the lists whose elements are stacked; ``growths``: how much longer an iteration makes those of ``rooms``
    at most; ``rebound``: elements of the lists that iterations bind to variables, by the indices of these, and ``arrays``: the
    positions of arrays whose lengths have no bound, for which there are ``rows_extent`` rows more than before the loop.
    ``is_limited``: the loop ends where there is no room for another iteration.
    """

    def __init__(self, loop: LoopStatement) -> None:
        self.loop = loop
        self.sized: set[int] = set()
        self.growths: Mapping[int, int] = {}
        self.rooms: Sequence[Room] = ()
        self.rebound: Mapping[int, list[Any]] = {}
        self.arrays: Collection[Position] = ()
        self.rows_extent: Any = None
        self.is_limited = False
        self._count: Any = None

    @property
    def count(self) -> Any:
        """The trip count, an int or an extent by value; infinite if it has no bound."""
        if self.loop.items is None or self.loop.items.is_endless:
            return math.inf
        if self._count is None:
            self._count = capacity_of(self.loop.items.count - self.loop.first, 1, 0)
        return self._count

    def provide(self, grows: Grows, truth: Any, ended: Completion | None) -> None:
        """Stack the elements of a list that iterations make longer."""
        growth = grows.needed - grows.before
        if type(growth) is int and (self.loop.has_bound or growth <= 0):
            grows.target.provide(grows, self.count)
            return
        if self.loop.has_bound and is_value_size(growth) and not is_inner(grows.needed):
            grows.target.refuse_other_frame(grows)
            grows.target.stack(grows.samples, grows.needed)
            return
        room = LoopRoom(self.loop)
        room.sized |= self.sized
        again = lambda: driven(self.loop.traced(room, truth, ended), self.loop.iteration)  # noqa: E731
        signal: Signal = grows
        try:
            with attempt(not self.loop.has_bound):
                self.sized |= provide_counted(grows, self.loop.read_variables(), again)
                return
        except (Rebinds, Lengthens) as other:
            signal = other
        self.provide_for_rows(signal, truth, ended)

    def provide_for_rows(self, signal: Signal, truth: Any, ended: Completion | None) -> None:
        """Provide for the lists and arrays that iterations make longer or bind anew, by numbers that values decide: find how many
        rows suffice."""

        def run(limits: Limits) -> list[TracedArray]:
            limited = LoopRoom(self.loop)
            limited.take(limits)
            limited.rooms, limited.is_limited = list(limits.rooms.values()), True
            return driven(self.loop.traced(limited, truth, ended), self.loop.iteration).left

        self.take(provide_rooms(signal, self.loop.read_variables(), run))

    def take(self, limits: Limits) -> None:
        """Set what the loop has room for."""
        self.sized |= {*limits.rooms}
        self.growths = {**self.growths, **{k: room.growth for k, room in limits.rooms.items()}}
        if limits.rebound or limits.arrays:
            self.rebound, self.arrays, self.rows_extent = limits.rebound, limits.arrays, limits.extent


class Rolled:
    """The trace of a loop, whose body is traced until the carry is known.

    ``entry``: the contents of the ``variables`` before the loop. ``carried``: the indices of the variables that are carried;
    ``targets``: the arrays from outside that the body writes, which are carried too. ``may_leave``: values decide whether an
    iteration ends the loop. ``carry`` has ``size`` parts: the variables, the arrays, and, of a loop that may be left, whether it
    goes on, the index of the next item, how it ended and what it returns. ``aliases``: what the carried arrays may be, and
    ``exchanged`` the positions of those that iterations exchange, whose tags are carried; None if this is not known yet.
    ``choices``: values from before the loop that are one of several in it, by the indices of variables, -1 for what is returned;
    ``ended``: how the loop ended; ``noted``: the carry of an earlier trace, with which this one began, and ``must_leave``:
    ``may_leave`` without it. ``supposed``: the arrays that an iteration wrote before variables of numbers joined the carry, which
    the next one has to write too; ``supposes``: whether there may be such. ``tested``: the truth of the condition before the
    first iteration, after one that ran by itself. ``left``: whether there was room for the lists that iterations bound.
    """

    def __init__(self, loop: LoopStatement, room: LoopRoom) -> None:
        self.loop, self.room = loop, room
        self.variables = loop.read_variables()
        self.plain: set[int] = set()
        contents = zip(self.variables.names, self.variables.read(), strict=True)
        self.entry = [UNBOUND if name in loop.temporary else value for name, value in contents]
        self.live = {k for k, name in enumerate(self.variables.names) if name in loop.live}
        self.carried: list[int] = []
        self.targets: list[TracedArray] = []
        self.returned: Any = UNBOUND
        self.may_leave = loop.test is not None
        self.left: list[TracedArray] = []
        self.ended: Completion | None = None
        self.possible: frozenset[int] = frozenset()
        self.carry, self.size = Carry("a loop", (), "the state"), 0
        self.aliases = LoopAliases()
        self.exchanged: list[Position] | None = None
        self.choices: dict[int, Any] = {}
        self.supposed: list[TracedArray] = []
        self.supposes = True
        self.noted: EarlierCarry | None = None
        self.must_leave = False
        self.ends_by_test = False
        self.tested: TracedArray | None = None
        self.is_empty: Callable[[], TracedArray] = lambda: as_traced(np.bool_(False))

    def capacity(self, k: int) -> Any:
        """Return the number of rows for the lists that iterations bind to a variable."""
        entry = self.entry[k]
        if type(entry) is not GrowingList:
            raise TraceError(OTHER_VALUE)
        return base_capacity(entry) + self.room.rows_extent

    @property
    def is_repeatable(self) -> bool:
        """Whether the body is a function, which may be traced any number of times, and its traces are noted."""
        return self.loop.variables is None and takes_notes(self.loop.body)

    def earlier_carry(self) -> EarlierCarry | None:
        """Return the carry of an earlier trace of the loop with which this one may begin; None if there is none."""
        carries = earlier(EarlierCarry, self.loop.body) if self.is_repeatable else ()
        return next((x for x in carries if x.serves(self.variables.names, self.entry)), None)

    def roll(self, truth: Any, ended: Completion | None, noted: EarlierCarry | None = None) -> Steps[None]:
        """Trace the body until its carry is known, and emit the loop. The carry is ``noted`` first, or nothing. Raises Grows and
        Rebinds."""
        self.possible = possible_codes(ended)
        self.may_leave |= self.room.is_limited and bool(self.room.rebound or self.room.arrays)
        self.carried += [k for k in self.room.rebound if k not in self.carried]
        if ended is not None:
            self.may_leave, self.returned = True, ended.value
        if noted is not None:
            self.noted, self.size, self.must_leave = noted, -1, self.may_leave
            self.carried, self.targets, self.may_leave = [*noted.carried], [*noted.targets], self.may_leave or noted.may_leave
        entry = tuple(map(kind_of, self.entry)) if self.is_repeatable else ()
        statements, before = frame_of().root.statements, [*self.entry]
        count = len(statements)
        try:
            for _ in range(MOST_ATTEMPTS):
                del statements[count:]
                if (yield from self.attempt(truth, ended)):
                    note_statement(statements, "loop", self.how)
                    carry = EarlierCarry(
                        names=self.variables.names, entry=entry, carried=tuple(self.carried), targets=tuple(self.targets),
                        may_leave=self.may_leave,
                    )  # fmt: skip
                    if self.is_repeatable:
                        note_loop(self.loop.body, carry)
                    return
        except BaseException:
            self.variables.write(before)  # the loop may be traced again, and evaluates its condition anew
            raise
        raise TraceError("the variables of a loop on traced values change their types in each iteration; start from their types")

    @property
    def how(self) -> str:
        """How the loop is compiled, for reports."""
        if self.loop.items is None:
            return "rolled: values decide when it ends"
        start = f"rolled from iteration {self.loop.first + 1} on" if self.loop.first else "rolled"
        counted = self.loop.items.is_counted and not self.loop.items.is_endless
        count = f"{self.loop.items.count - self.loop.first} iterations" if counted else "as many iterations as values decide"
        return f"{start}: {count}{', unless values end it before' if self.may_leave else ''}"

    def attempt(self, truth: Any, ended: Completion | None) -> Steps[bool]:
        """Trace the body and emit the loop; return False if the body is to be traced again with other carries."""
        goes_on: Any = self.goes_on(truth, ended) if self.may_leave else None
        state: list[Any] = [self.entered(k) for k in self.carried]
        state += self.targets
        state += [as_traced(np.int64(index)) for index in range(len(self.exchanged or ()))]
        if self.may_leave:
            code = as_traced(np.int64(NEXT)) if ended is None else as_traced(np.int64(1) * code_of(ended))
            self.is_empty = lambda: as_traced(np.logical_not(goes_on))
            state += [goes_on, as_traced(np.int64(self.loop.first)), code]
            if self.returned is not UNBOUND:
                state.append(placeholder(self.returned, 0) if ended is None or ended.value is UNBOUND else ended.value)
        for k in range(len(state)):
            state[k] = self.choices.get(self.key(k), state[k]) if k in (*range(len(self.carried)), len(state) - 1) else state[k]
        if len(state) != self.size:
            self.carry, self.size = _LoopCarry(state, self.positions(state), self.room), len(state)
        block = _LoopRegion()
        index = block.parameter(scalar(I64))
        with block.inner.active():
            inside = list(map(dereferenced, self.carry.enter(block)))  # type: ignore[arg-type]
            lists = {k: unpacked(inside[j], self.capacity(k)) for j, k in enumerate(self.carried) if k in self.room.rebound}
        entry, parameters = self.arrays(state), self.arrays(inside)
        self.aliases.enter(entry, parameters)
        for position, tag in zip(self.exchanged or (), inside[len(self.carried) + len(self.targets) :], strict=False):
            parameters[position][0].tag = tag
        ran, results, new_carried, new_targets, returned = yield from self.iteration(block, index, inside, lists)
        self.refuse_unchanged(inside, ran)
        if any(not any(t is x for x, _ in ran.written) for t in self.supposed):
            self.targets, self.supposed, self.supposes, self.exchanged, self.size = [], [], False, None, -1
            return False
        self.enter_places([*self.carried, *new_carried], ran)
        if new_carried or new_targets or (returned is not UNBOUND and self.returned is UNBOUND) or self.leaves(ran):
            self.carried += new_carried
            changed_values = [value for k in new_carried for value in (self.entry[k], ran.variables[k])]
            are_numbers = not any(True for _ in arrays_in(changed_values))
            self.targets = [*self.targets, *new_targets] if not new_carried or (are_numbers and self.supposes) else []
            self.supposed = [*self.targets] if new_carried else self.supposed
            self.exchanged, self.size = None, -1
            self.returned = returned if self.returned is UNBOUND else self.returned
            return False
        after = self.arrays([self.tree(k, ran.variables[k]) for k in self.carried], like=entry)
        is_more = self.aliases.learn(entry, parameters, after, block.inner)
        if self.aliases.learn_readonly(after):
            return False
        origins = self.aliases.written(parameters)
        if is_more and (origins or any(x is t for xs in self.aliases.origins.values() for x in xs for t, _ in ran.written)):
            return False
        if origins and self.is_undecided(entry, parameters, after):
            return False
        refuse_read([*ran.forgotten, *origins], block.inner)
        changed = {k for k, x, y in zip(self.carried, state, results, strict=False) if not _is_alike(x, y)} - self.plain
        changed = {k for k in changed if self.has_references(k, ran)}
        if changed:
            self.plain |= changed
            self.size = -1
            return False
        for k in self.plain:
            refuse_changed([self.entry[k], ran.variables[k]], ran.changed)
        if self.is_restructured(block, state, inside, results):
            return False
        arrays = self.carry.returned(block, self.loop.body, tuple(results))  # type: ignore[arg-type]
        if arrays is not None:
            bounds = self.bounds(ran)
            for x, parameter in zip(flatten(state)[0], flatten(inside)[0], strict=False):
                if isinstance(parameter, TracedArray) and parameter.weak == "int":
                    require_room(as_traced(x), parameter)
            try:
                self.ended = self.emitted(block, arrays, ran, (entry, parameters))
            except TypeError as error:
                raise TraceError("the arrays that a loop exchanges have other names in each trace; write into copies") from error
            for target, least, most, length in bounds:
                target.bound(least, most, length)
        return arrays is not None

    def enter_places(self, carried: Sequence[int], ran: Ran) -> None:
        """Give the places outside that join the carry a content before the loop, which is not stored if there is none."""
        for k in carried:
            if k in self.variables.outside:
                refuse_objects([self.entry[k], ran.variables[k]], self.variables.names[k])
            if k in self.variables.places:
                refuse_objects([self.entry[k], ran.variables[k]], self.variables.names[k])
                if self.entry[k] is UNBOUND:
                    refuse_absent(self.variables.places[k])
                    self.entry[k] = placeholder(ran.variables[k])

    def positions(self, state: Sequence[Any]) -> list[Position]:
        """Return for each leaf of a carry the index of its variable, -1 for another part of the carry, and its own in that."""
        return [(self.key(p), j) for p, value in enumerate(state) for j in range(len(flatten(value)[0]))]

    def refuse_unchanged(self, inside: list[Any], ran: Ran) -> None:
        """Raise TraceError if an iteration does not change all that an earlier trace of the loop carried."""
        if self.noted is None:
            return
        variables = self.variables.state.referenced
        before = dict(zip(self.carried, inside, strict=False))
        for k in self.noted.carried:
            after = variables(ran.variables[k])
            if is_same(before.get(k, after), after) or is_same(variables(self.entry[k]), after):
                raise TraceError("a loop does not change a variable that an earlier trace of it carried")
        contents = {id(t): x for t, x in ran.written}
        parameters = zip(self.targets, inside[len(self.carried) : len(self.carried) + len(self.targets)], strict=True)
        if any(id(t) not in contents or contents[id(t)]._value is x._value for t, x in parameters):
            raise TraceError("a loop does not write an array that an earlier trace of it wrote")
        if self.noted.may_leave and not self.must_leave and possible_codes(ran.completion) <= {NEXT, CONTINUE}:
            raise TraceError("a loop is not left, which an earlier trace of it left")

    def is_undecided(self, entry: Held, parameters: Held, after: Held) -> bool:
        """Return whether it turns out that iterations exchange arrays, or not, which the carry does not provide for yet."""
        group = self.aliases.exchanged(entry, parameters)
        if self.exchanged is None:
            self.exchanged = group
        elif self.exchanged and (group != self.exchanged or not are_exchanged(after, group)):
            self.exchanged, group = [], self.exchanged
        else:
            return False
        self.size = -1
        return bool(group)

    def arrays(self, values: Sequence[Any], like: Collection[Position] = ()) -> dict[Position, list[TracedArray]]:
        """Return the arrays in the values of the carried variables, which are the first parts of a carry, by their positions.
        ``like``: the positions; a value with another number of arrays may have each at each of its positions."""
        rows = [list(arrays_in([v])) for v in values[: len(self.carried)]]
        own = {(k, j): [x] for k, row in enumerate(rows) for j, x in enumerate(row)}
        counts = Counter(k for k, _ in like)
        return {p: own[p] if len(rows[p[0]]) == counts[p[0]] else rows[p[0]] for p in like} if like else own

    def tree(self, k: int, value: Any) -> Any:
        """Return the contents of a variable, with containers of the state as references; as copies if it holds others too."""
        if k in self.room.rebound and isinstance(value, Packed):
            return value
        return value if k in self.plain else self.variables.state.referenced(value)

    def entered(self, k: int) -> Any:
        """Return the contents of a variable before the loop, as a part of the carry."""
        if k not in self.room.rebound:
            return self.tree(k, self.entry[k])
        entry: Any = self.entry[k]
        return packed(entry, self.room.rebound[k], self.capacity(k))

    def rebind(self, block: _LoopRegion, ran: Ran, entry: list[Any], lists: Mapping[int, GrowingList]) -> None:
        """Replace the lists that an iteration bound to variables by trees. Raises Rebinds for a list of which the carry does not
        provide for."""
        for k, (before, after) in enumerate(zip(entry, ran.variables, strict=True)):
            is_carried = self.entry[k] is not UNBOUND or k in self.live
            if is_carried and k not in self.room.rebound and before is not UNBOUND and is_rebound(before, after):
                raise Rebinds(k, [*after.samples(), *before.samples()])
        for k, before in lists.items():
            after = ran.variables[k]
            others = [v for j, v in enumerate(ran.variables) if j != k and (self.entry[j] is not UNBOUND or j in self.live)]
            if after is not before:
                if type(after) is not GrowingList:
                    raise TraceError(OTHER_VALUE)
                if k not in self.variables.sole:
                    refuse_other_names(after, others, block.inner)
            with block.inner.active():
                ran.variables[k] = packed(after, self.room.rebound[k], self.capacity(k))

    def bounds(self, ran: Ran) -> list[tuple[GrowingList, Any, Any, int | None]]:
        """Return the lists with rows, with bounds of their lengths after the loop, and these if they are known. Raises Grows if
        arrays are too short."""
        result: list[tuple[GrowingList, Any, Any, int | None]] = []
        for target, least, most in ran.lists:
            rows, end = target.rows, math.inf
            assert rows is not None
            if rows.counts:
                continue
            if id(target) in self.room.sized and target.is_here:
                if id(target) in self.room.growths and not _is_within(most - rows.most, self.room.growths[id(target)]):
                    raise Grows(target, [], rows.most, most)
                result.append((target, -math.inf, rows.capacity, None))
                continue
            growth, loss = most - rows.most, least - rows.least
            is_resized = type(growth) is not int or growth != 0
            if self.loop.test is not None and is_resized and target.is_here:
                raise Grows(target, [], rows.most, most)
            if type(growth) is int and (growth <= 0 or rows.frame is frame_of() or type(self.room.count) is int):
                end = capacity_of(self.room.count, growth, rows.most)
                target.refuse_longer(end)
            elif is_resized and target.is_here:
                raise Grows(target, [], rows.most, most)
            is_counted = not self.may_leave and type(self.room.count) is int
            least = rows.least if loss >= 0 else -math.inf
            is_known = is_counted and growth == loss and type(rows.length) is int
            result.append((target, least, end, rows.length + growth * self.room.count if is_known else None))
        return result

    def has_references(self, k: int, ran: Ran) -> bool:
        """Return whether a variable holds containers of the state, before the loop or after an iteration."""
        values = [self.entry[k], ran.variables[k]]
        return any(id(c.value) in self.variables.state.ids for c in containers_in(("", v) for v in values))

    def is_restructured(self, block: _LoopRegion, state: list[Any], inside: list[Any], results: list[Any]) -> bool:
        """Return whether the carry becomes a choice, since an iteration gives it another structure; ``results`` get the carry's
        structures, and ``choices`` the values from before the loop."""
        is_changed = False
        for k, value in enumerate(results):
            entered = flatten(inside[k])[1]
            with block.inner.active():
                results[k] = narrowed(value)
                tree = flatten(results[k])[1]
            both = merged(bare(entered), bare(tree))
            if both is None and inside[k] is UNBOUND:
                self.live.discard(self.carried[k])
                self.carried.pop(k)
                return True
            if both is None or both == tree == entered:
                continue
            if both == bare(entered):
                with block.inner.active():
                    results[k] = restructured(results[k], both, inside[k])
            else:
                with block.inner.active():
                    example = flatten(results[k])[0]
                zeros = rebuild(bare(tree), [placeholder(as_traced(x)) for x in example])
                self.choices[self.key(k)] = restructured(state[k], both, zeros)
                is_changed = True
        if is_changed:
            self.size = -1
        return is_changed

    @property
    def rest_start(self) -> int:
        """The index of the first part of the carry after the variables, the arrays, and the tags of exchanged arrays."""
        return len(self.carried) + len(self.targets) + len(self.exchanged or ())

    def key(self, k: int) -> int:
        """Return the index of the variable that is part ``k`` of the carry; -1 for another part."""
        return self.carried[k] if k < len(self.carried) else -1

    @property
    def runs(self) -> bool:
        """Whether there is an iteration in any case. After none, a variable holds the array that it held before the loop."""
        items = self.loop.items
        return not self.may_leave and items is not None and items.is_counted and items.count > self.loop.first

    def leaves(self, ran: Ran) -> bool:
        """Return whether the body turns out to leave the loop, which its carry does not provide for yet."""
        if self.may_leave or possible_codes(ran.completion) <= {NEXT, CONTINUE}:
            return False
        self.may_leave = True
        return True

    def goes_on(self, truth: Any, ended: Completion | None) -> Any:
        """Return whether there is a first iteration, before the loop."""
        if self.loop.test is not None:
            if ended is None:
                self.ends_by_test |= truth is not True
                return self.within_room(_truth(truth))
            return self.within_room(self.test_after(ended))
        assert self.loop.items is not None
        more = self.loop.items.count > self.loop.first
        return _truth(more if ended is None else np.logical_and(is_code(ended, NEXT, CONTINUE), more))

    def test_after(self, ended: Completion) -> TracedArray:
        """Return the truth of the condition after the iteration before the loop, False if that left it. The condition is
        evaluated once, and what it changes is a part of the entry."""
        if self.tested is None:
            before = self.variables.read()
            self.tested = _truth(_while_not_ended(ended, self.test, self.loop.names))
            for k, (old, new) in enumerate(zip(before, self.variables.read(), strict=True)):
                if new is not old and self.variables.names[k] not in self.loop.temporary:
                    self.entry[k] = new
        return self.tested

    def iteration(
        self, block: _LoopRegion, index: TracedArray, inside: list[Any], lists: Mapping[int, GrowingList]
    ) -> Steps[tuple[Ran, list[Any], list[int], list[TracedArray], Any]]:
        """Trace an iteration. Return what it did, the carry after it, and what is to be carried besides."""
        count = len(self.carried)
        values, arrays = inside[:count], inside[count : count + len(self.targets)]
        rest = inside[self.rest_start :]
        entry = list(self.entry)
        for k, value in zip(self.carried, values, strict=True):
            entry[k] = lists.get(k, value)
        self.variables.write(entry)
        watched = [Watched(x) for k, x in lists.items() if k not in self.variables.sole]
        extra: list[Any] = []

        def run() -> Steps[Any]:
            if self.loop.items is None:
                ended = yield ()
            else:
                position = as_traced(rest[1] if self.may_leave else index if not self.loop.first else index + self.loop.first)
                at = TracedArray(position.type, block.inner, position.value, weak="int", loc=position.loc)
                at.bounds = (self.loop.first, self.loop.items.count - 1) if self.loop.items.is_counted else (0, 2**48)
                ended = yield (self.loop.items.at(at),)
            for each in watched:
                each.refuse_changes()
            if self.may_leave:
                extra.extend(self.state_after(ended, rest))
            return ended

        try:
            own = self.variables.state.ids
            fresh = Saved([(c, c.items) for c in containers_in(("", v) for v in values) if id(c.value) not in own])
            ran = yield from block.steps(run, self.variables, list(zip(self.targets, arrays, strict=True)), extra)
            fresh.refuse_changes()
        finally:
            self.variables.write(self.entry)
        if ran.raised is not None:
            raise TraceError(f"each iteration of a loop on traced values raises {type(ran.raised).__name__}: {ran.raised}")
        deleted = [n for n, a, b in zip(self.variables.names, entry, ran.variables, strict=True) if b is UNBOUND is not a]
        if deleted:
            raise TraceError(f"a loop on traced values deletes {deleted[0]}, which is bound before an iteration; assign None")
        self.rebind(block, ran, entry, lists)
        pairs = enumerate(zip(entry, ran.variables, strict=True))
        changed = [k for k, (a, b) in pairs if a is not b and k not in lists and not is_same(self.tree(k, a), self.tree(k, b))]
        new_carried = [k for k in changed if k not in self.carried and self.is_carried(k)]
        new_targets = [t for t, _ in ran.written if not any(t is x for x in self.targets)]
        new_targets = [t for t in new_targets if not any(t is x for x in block.inside)]
        contents = {id(t): x for t, x in ran.written}
        named = [map_leaves(ran.at_end, self.tree(k, ran.variables[k])) for k in self.carried]
        ends = [map_leaves(ran.at_end, self.variables.state.referenced(x)) for x in extra]
        tags = self.tags_after(ran)
        results = [*named, *(contents.get(id(t), t) for t in self.targets), *tags, *ends]
        returned = self.variables.state.referenced(ran.completion.value) if isinstance(ran.completion, Completion) else UNBOUND
        return ran, results, new_carried, new_targets, returned

    def is_carried(self, k: int) -> bool:
        """Return whether a variable that iterations change is carried."""
        return self.entry[k] is not UNBOUND or k in self.live or k in self.variables.places

    def tags_after(self, ran: Ran) -> list[Any]:
        """Return the tags of exchanged arrays after an iteration; 0 for an array that is none."""
        rows = {k: list(arrays_in([self.tree(k, ran.variables[k])])) for k in self.carried}
        arrays = [rows[self.carried[k]][j : j + 1] for k, j in self.exchanged or ()]
        return [np.int64(0) if not x or x[0].tag is None else x[0].tag for x in arrays]

    def within_room(self, goes_on: TracedArray) -> TracedArray:
        """Return whether the loop goes on and its lists have room for another iteration."""
        tests = [room.is_left() for room in self.room.rooms]
        if self.room.is_limited:
            now = self.variables.read()
            tests += [fits(now[k], self.capacity(k)) for k in self.room.rebound if type(now[k]) is GrowingList]
            tests += [self.has_rows_for(now[k], (k, j)) for k, j in self.room.arrays if k >= 0]
        for test in tests:
            goes_on = as_traced(np.logical_and(goes_on, test))
        return goes_on

    def has_rows_for(self, value: Any, position: Position) -> TracedArray:
        """Return whether the room of an array suffices for that of a variable's value. Raises TraceError for other structures."""
        k, j = position
        (before, tree), (after, other) = flatten(self.tree(k, self.entry[k])), flatten(self.tree(k, value))
        if bare(tree) != bare(other):
            raise TraceError("an array whose length values decide is another value in iterations of a loop")
        x, y = as_traced(before[j]), as_traced(after[j])
        axis = changing_axis(x, y) or 0
        return as_traced(number_of_extent(y.shape[axis]) <= number_of_extent(x.shape[axis] + self.room.rows_extent))

    def test(self) -> Any:
        """Return the value of the condition, and note if the loop may end by it."""
        assert self.loop.test is not None
        truth = truth_of(self.loop.test())
        self.ends_by_test |= truth is not True
        return truth

    def state_after(self, ended: Completion | None, rest: list[Any]) -> list[Any]:
        """Return whether the loop goes on after an iteration, the index of the next one, how it ended, and what it returns."""
        following = rest[1] + 1
        if self.loop.test is not None:
            goes_on = self.within_room(_truth(_while_not_ended(ended, self.test, self.loop.names)))
        else:
            assert self.loop.items is not None
            more = _truth(np.logical_and(is_code(ended, NEXT, CONTINUE), following < self.loop.items.count))
            goes_on = self.within_room(more)
        code = np.int64(1) * code_of(ended)
        values: list[Any] = [goes_on, following, code]
        if len(rest) > 3:
            has_value = isinstance(ended, Completion) and ended.value is not UNBOUND
            values.append(ended.value if has_value and ended is not None else rest[3])
        return values

    def emitted(
        self, block: _LoopRegion, arrays: list[TracedArray], ran: Ran, held: tuple[Held, Held]
    ) -> Completion | None:  # fmt: skip
        """Emit the loop, set what it changes, and return how it ended."""
        size = len(arrays)
        if self.may_leave:
            condition = _LoopRegion()
            condition.parameter(scalar(I64))
            state = self.carry.enter(condition)  # type: ignore[arg-type]
            with condition.inner.active():
                test = cast(as_traced(state[self.rest_start]), bool)
            regions = [(condition, [test]), (block, arrays)]
            results = _emitted_regions("while", {"carried": size}, block.operands, regions)[:size]
        else:
            assert self.loop.items is not None
            count = self.loop.items.count - self.loop.first
            self.is_empty = lambda: as_traced(count <= 0)
            static = isinstance(count, int)
            params = {"carried": size, "sliced": 0, "length": (count,) if static else (), "reverse": False}
            operands = block.operands if static else [cast(as_traced(count), np.int64), *block.operands]
            results = _emitted_regions("scan", params, operands, [(block, arrays)])
        values = list(map(dereferenced, self.carry.rebuilt(results, self.runs)))
        for leaf in self.carry.rooms:
            ragged = self.carry.ragged.get(leaf)
            if ragged is not None:
                self.left.append(as_traced(ragged.left <= number_of_extent(ragged.buffer.shape[0])))
        final = list(self.entry)
        for k, value in zip(self.carried, values, strict=False):
            if k in self.room.rebound:
                final[k] = self.leave_list(k, value)
                continue
            final[k] = value
            share_made([*([] if self.runs else [self.entry[k]]), ran.variables[k]], value)
        for target, new in zip(self.targets, values[len(self.carried) :], strict=False):
            write_back(target, as_traced(new))
        self.variables.write(final)
        note_partly_bound(self.variables.names, final, ran.variables)
        bound = self.arrays(values)
        entry, parameters = held
        kept = self.restore_exchanged(entry, bound, values[self.rest_start - len(self.exchanged or ()) : self.rest_start])
        self.aliases.leave(bound, self.runs)
        if not self.runs:
            self.aliases.note_same(entry, bound, self.is_empty)
        forgotten = [*ran.forgotten, *self.aliases.written(parameters)]
        forget_all([x for x in forgotten if not any(x is y for y in kept)])
        after = [ran.variables[k] for k in self.carried]
        if self.plain or shares_containers(after):
            keep([*(self.entry[k] for k in self.plain), *after, *values])
        if not self.may_leave:
            return None
        rest = values[self.rest_start :]
        aliases = [*aliases_in(ran.completion), *(x for xs in bound.values() for x in xs)] if len(rest) > 3 else []
        possible = self.possible | possible_codes(ran.completion)
        if self.loop.test is not None and not self.ends_by_test and not self.left:
            possible -= {NEXT, CONTINUE}
        value = rest[3] if len(rest) > 3 else UNBOUND
        if frame_of().root.try_statements:
            share(aliases, value)  # a ``finally`` clause may write into what is returned
        return Completion(code=rest[2], value=value, possible=possible, aliases=tuple(aliases))

    def leave_list(self, k: int, value: Packed) -> GrowingList:
        """Return the list after the loop of a variable that iterations bind anew."""
        result = unpacked(value, self.capacity(k))
        self.left.append(fits(result, self.capacity(k)))
        entry: Any = self.entry[k]
        if not self.runs and k not in self.variables.sole:
            fix(entry, result)
        return result

    def restore_exchanged(self, entry: Held, bound: Held, tags: Sequence[TracedArray]) -> list[TracedArray]:
        """Give the arrays that iterations exchanged their contents under the names that they have now, and return them."""
        group = self.exchanged or []
        before, after = [entry[p][0] for p in group], [bound[p][0] for p in group]
        outer = [x.tag for x in before if x.tag is not None]
        contents = [selected(k, tags, after) for k in range(len(group))]
        for x, new in zip(before, contents, strict=True):
            write_back(x, new)
        for x, tag in zip(after, tags, strict=True):
            if len(outer) == len(group):
                x.tag = chosen(tag, outer)
            x.chosen = tuple((y, as_traced(tag == k), True, y.version, x.version) for k, y in enumerate(before))
            x.same_as = tuple((y, test) for y, test, *_ in x.chosen)
        return before


def finished(ended: Completion | None, orelse: Block | None, names: Sequence[str]) -> Completion | None:
    """Run the ``else`` of a loop unless it was left, and return how the statement ended."""
    result = None
    raised = {code for code in possible_codes(ended) if code >= RAISE}
    if ended is not None and (raised or ended.value is not UNBOUND):
        result = ended
        if not ended.is_decided:
            leaving = {*raised, *({RETURN} if RETURN in ended.possible else ())}
            code = as_traced(np.where(is_code(ended, *leaving), as_traced(np.int64(1) * code_of(ended)), np.int64(NEXT)))
            possible = frozenset({*leaving, *({NEXT} if ended.possible - leaving else ())})
            only = next(iter(possible)) if possible == {RETURN} else code
            result = Completion(code=only, value=ended.value, possible=possible, aliases=ended.aliases)
    if orelse is None:
        return result
    if ended is None or (ended.is_decided and is_code(ended, NEXT, CONTINUE)):
        following: Completion | None = orelse()
        return following
    if result is not None:
        if result.is_decided:
            return result
        others = {NEXT} if BREAK in possible_codes(ended) else set()
        left = replace(result, possible=(possible_codes(result) - {NEXT}) | others)
        return branch(as_traced(is_code(ended, NEXT, CONTINUE)), orelse, lambda: left, names, [orelse])
    return if_(is_code(ended, NEXT, CONTINUE), orelse, None, names)


def _emitted_regions(*arguments: Any) -> list[TracedArray]:
    """Emit a loop and return its results. Raises TraceError for a carry whose shapes are not those of an iteration."""
    try:
        return emit_regions(*arguments)
    except TypeError as error:
        raise TraceError("the variables of a loop on traced values change their shapes; start from their shapes") from error


class _LoopCarry(Carry):
    """The carry of a loop. ``positions``: those of its arrays in variables; ``room``: that of the loop's lists and arrays."""

    tags_bools = True

    def __init__(self, state: Sequence[Any], positions: Sequence[Position], room: LoopRoom) -> None:
        super().__init__("a loop", tuple(state), "the state")
        self.positions, self.room = positions, room
        limited = RowRoom(extent=room.rows_extent, is_limited=room.is_limited)
        self.rooms = {k: limited for k, position in enumerate(positions) if position in room.arrays}

    @property
    def trip_count(self) -> Any:
        """The trip count, an int or an extent by value; None if it has no bound."""
        return None if type(self.room.count) is float else self.room.count

    def refuse_length(self, k: int, function: Any, entered: TracedArray, returned: TracedArray) -> NoReturn:
        """Raise Lengthens, after which the loop is traced again with room for array ``k``."""
        raise Lengthens(self.positions[k])


class _LoopRegion(BlockRegion):
    """The region of the body of a loop."""

    def __init__(self) -> None:
        super().__init__("a loop")

    def take(self, x: TracedArray, type: Any = None, readonly: str = "") -> TracedArray:
        """Return a parameter for a carried array: a row-major copy."""
        result = self.enter(x, type, x.weak if type is None else "")
        result.readonly, result.layout_of, result.is_dense, result.origin = readonly, None, True, None
        return result


def _is_within(growth: Any, bound: int) -> bool:
    """Return whether the growth of a list in an iteration is known to be within a bound."""
    return type(growth) is int and growth <= bound


def _is_alike(a: Any, b: Any) -> bool:
    return bare(flatten(a)[1]) == bare(flatten(b)[1])


def map_leaves(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a tree with a function applied to its leaves."""
    if value is UNBOUND:
        return value
    leaves, tree = flatten(value)
    return rebuild(tree, [function(x) for x in leaves])


def _truth(value: Any) -> TracedArray:
    value = truth_of(value)
    return cast(as_traced(value != 0 if isinstance(value, TracedArray) else bool(value)), bool)


def _while_not_ended(ended: Completion | None, test: Callable[[], Any], names: Sequence[str]) -> Any:
    """Return the value of a condition, or False after an iteration that left the loop."""
    goes_on = is_code(ended, NEXT, CONTINUE)
    if goes_on is True:
        return _truth(test())
    if goes_on is False:
        return False
    following = lambda: Completion(code=RETURN, value=_truth(test()))  # noqa: E731
    result = branch(as_traced(goes_on), following, lambda: Completion(code=RETURN, value=_truth(False)), names, [test])
    assert result is not None
    return result.value
