"""Lengths of lists and arrays that no trip count bounds: the statement runs before, to find them.

If it only appends to lists and does not read them, it counts what it appends. Else it runs with room for some iterations, and
ends before this would not suffice; it runs anew with room for four times as many until it ends by itself:

    r = 64                                              there is room for what r iterations append, or for r rows more
    while not fits:                                     the loop ends before an iteration for which there may be no room
        fits = loop with room for r iterations
        r = r if fits else 4 * r
    loop with room for r iterations
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import I64, scalar
from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, cast, number_of_extent
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import value_extent
from pullback.tracer.statements.blocks import BlockRegion
from pullback.tracer.statements.containers import Container
from pullback.tracer.statements.growing import GrowingList, Grows, capacity_of
from pullback.tracer.statements.rebound import Rebinds
from pullback.tracer.statements.unrolling import walk_all
from pullback.tracer.statements.variables import Variables
from pullback.tracer.transforms.region import emit_regions
from pullback.tracer.user_code.errors import Restart, TraceError

MOST_ATTEMPTS = 12
"""Largest number of traces of a block until its carry is known: variables join the carry, types widen, and lists grow."""
MOST_SEARCHES = 40
"""Largest number of searches in the trace of a function, each of which traces a loop at least twice: some ten seconds of trace.
A loop in ``k`` others is searched some ``4**k`` times."""
FIRST_ITERATIONS = 64
"""The number of iterations for which there is room at first: a few KiB for lists of numbers."""


def provide_counted(grows: Grows, variables: Variables, run: Callable[[], Any]) -> set[int]:
    """Stack the elements of the lists that a statement makes longer, as many as it turns out to append, and return the ids of the
    lists. ``run`` traces the statement."""
    grows.target.refuse_other_frame(grows)
    statements = frame_of().root.statements
    count = len(statements)
    counted = {id(grows.target): (grows.target, [*grows.samples])}
    for _ in range(MOST_ATTEMPTS):
        try:
            lengths = _lengths(list(counted.values()), variables, run)
        except Grows as other:
            other.target.refuse_other_frame(other)
            counted.setdefault(id(other.target), (other.target, []))[1].extend(other.samples)
            continue
        finally:
            del statements[count:]
        for (target, samples), length in zip(counted.values(), lengths, strict=True):
            target.stack(samples, value_extent(length, least=0, is_capacity=True))
        return {*counted}
    raise TraceError("the lists of a block on traced values grow in each trace")


def _lengths(
    lists: Sequence[tuple[GrowingList, list[Any]]], variables: Variables, run: Callable[[], Any]
) -> list[TracedArray]:  # fmt: skip
    """Return the numbers of elements that lists have after a statement."""
    region = BlockRegion("a block")
    region.inner.is_counting = True
    lengths: list[Any] = []

    def block() -> None:
        with _unchanged([target for target, _ in lists]):
            for target, samples in lists:
                target.count_only(samples)
            run()
            lengths.extend(cast(as_traced(target.length()), np.int64) for target, _ in lists)

    region.run(block, variables)
    refuse_effects(region)
    results = region.close(lengths).inline()
    for x in results:
        x.weak = "int"
    return results


@dataclass(frozen=True, kw_only=True)
class Room:
    """The room of a list in a loop: an iteration makes it longer by at most ``growth``. ``samples``: elements that it appends."""

    target: GrowingList
    samples: list[Any]
    growth: int

    def stack(self, iterations: Any) -> None:
        """Give the list arrays that suffice for a number of iterations, an extent."""
        self.target.stack(self.samples, capacity_of(iterations, self.growth, self.target.most))

    def is_left(self) -> Any:
        """Return whether the arrays suffice for another iteration, a traced bool."""
        rows = self.target.rows
        assert rows is not None
        return as_traced(self.target.length() + self.growth <= number_of_extent(rows.capacity))


Rooms = dict[int, Room]
"""The rooms of lists, by the ids of these."""


Rebound = dict[int, list[Any]]
"""Elements of the types of the lists that iterations bind to variables, by the indices of these."""


class Lengthens(Restart):
    """Signals a carried array whose length has no bound before a loop: ``position`` is the index of its variable, and that of
    the array in it."""

    def __init__(self, position: tuple[int, int]) -> None:
        super().__init__("an array")
        self.position = position


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a loop has room for: ``rooms`` of lists that it makes longer, and ``extent`` rows for what iterations bind to the
    variables ``rebound``, and for the ``arrays`` at positions in variables, more than these have before the loop."""

    rooms: Rooms
    rebound: Rebound
    arrays: set[tuple[int, int]]
    extent: Any


Signal = Grows | Rebinds | Lengthens


def provide_rooms(signal: Signal, variables: Variables, run: Callable[[Limits], list[TracedArray]]) -> Limits:
    """Return what a loop has to have room for: lists and arrays that it makes longer by numbers that values decide. The elements
    of these lists are stacked. ``run`` traces the loop, which ends where there is no room for another iteration, and returns
    whether there was room for what it did."""
    root = frame_of().root
    root.searches += 1
    if root.searches > MOST_SEARCHES:
        raise TraceError("loops without a bound, one in another, make lists or arrays longer; bound the inner ones")
    statements = root.statements
    count = len(statements)
    rooms: Rooms = {}
    rebound: Rebound = {}
    arrays: set[tuple[int, int]] = set()
    limits = lambda extent: Limits(rooms=rooms, rebound=rebound, arrays=arrays, extent=extent)  # noqa: E731
    for _ in range(MOST_ATTEMPTS):
        if isinstance(signal, Rebinds):
            rebound.setdefault(signal.key, []).extend(signal.samples)
        elif isinstance(signal, Lengthens):
            arrays.add(signal.position)
        else:
            _add(rooms, signal)
        try:
            iterations = _iterations(lambda extent: _fits(limits(extent), variables, run))
        except (Grows, Rebinds, Lengthens) as other:
            signal = other
            continue
        finally:
            del statements[count:]
        extent = value_extent(iterations, least=1, is_capacity=True)
        for room in rooms.values():
            room.stack(extent)
        return limits(extent)
    raise TraceError("the lists of a loop on traced values grow in each trace")


def _add(rooms: Rooms, grows: Grows) -> None:
    """Add a list, or its greater growth, to the rooms of lists."""
    grows.target.refuse_other_frame(grows)
    growth = grows.needed - grows.before
    if type(growth) is not int:
        raise TraceError("a loop without a bound inside another one reads a list that both make longer; write into an array")
    before = rooms.get(id(grows.target), Room(target=grows.target, samples=[], growth=1))
    samples = [*before.samples, *grows.samples]
    rooms[id(grows.target)] = Room(target=grows.target, samples=samples, growth=max(growth, before.growth))


def _iterations(has_room: Callable[[Any], TracedArray]) -> TracedArray:
    """Return a number of iterations for which there is room enough: emit the loop that finds it. ``has_room`` emits the test of
    a number of iterations, an extent."""
    start = [as_traced(np.int64(FIRST_ITERATIONS)), as_traced(np.bool_(False))]
    condition, body = BlockRegion("a loop"), BlockRegion("a loop")
    body.inner.is_counting = True
    for region in (condition, body):
        region.parameter(scalar(I64))
    _, fits = map(condition.enter, start)
    with condition.inner.active():
        test = as_traced(np.logical_not(fits))
    iterations, _ = map(body.enter, start)
    with body.inner.active():
        extent = value_extent(iterations, least=1, is_capacity=True)
        fits = has_room(extent)
        more = as_traced(np.where(fits, iterations, 4 * iterations))
    result: TracedArray = emit_regions("while", {"carried": 2}, start, [(condition, [test]), (body, [more, fits])])[0]
    result.weak = "int"
    return result


def _fits(limits: Limits, variables: Variables, run: Callable[[Limits], list[TracedArray]]) -> TracedArray:
    """Return whether a loop ends within limits."""
    region = BlockRegion("a block")
    region.inner.is_counting = True
    results: list[TracedArray] = []

    def block() -> None:
        rooms = limits.rooms.values()
        with _unchanged([room.target for room in rooms]):
            for room in rooms:
                room.stack(limits.extent)
            left = run(limits)
            left += [room.is_left() for room in rooms]
            fits: Any = left[0]
            for test in left[1:]:
                fits = np.logical_and(fits, test)
            results.append(as_traced(fits))

    region.run(block, variables)
    refuse_effects(region)
    return region.close(results).inline()[0]


@contextmanager
def _unchanged(lists: Sequence[GrowingList]) -> Iterator[None]:
    """A context after which lists are what they were before it."""
    before = [(target, Container(target, ""), target.state()) for target in lists]
    items = [c.items for _, c, _ in before]
    try:
        yield
    finally:
        for (target, c, state), inside in zip(before, items, strict=True):
            target.set_state(state)
            c.restore(inside)


def refuse_effects(region: BlockRegion) -> None:
    """Raise TraceError if a block that runs before the statement does would print or call the host."""
    if any(i.op.effect == "effect" for i in walk_all(region.inner.builder.instructions)):
        raise TraceError("a loop without a bound that makes a list longer prints, or calls the host; bound the loop")
