"""Numbers of elements of lists that no trip count bounds: the statement runs once before, and counts what it appends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.make import as_traced, cast
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.arrays.value_extents import value_extent
from pullback.tracer.statements.blocks import BlockRegion
from pullback.tracer.statements.containers import Container
from pullback.tracer.statements.growing import GrowingList, Grows
from pullback.tracer.statements.variables import Variables
from pullback.tracer.user_code.errors import TraceError

MOST_ATTEMPTS = 12
"""Largest number of traces of a block until its carry is known: variables join the carry, types widen, and lists grow."""


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
            target.stack(samples, value_extent(length, least=0))
        return {*counted}
    raise TraceError("the lists of a block on traced values grow in each trace")


def _lengths(
    lists: Sequence[tuple[GrowingList, list[Any]]], variables: Variables, run: Callable[[], Any]
) -> list[TracedArray]:  # fmt: skip
    """Return the numbers of elements that lists have after a statement."""
    region = BlockRegion("a block")
    lengths: list[Any] = []

    def block() -> None:
        before = [(target, Container(target, ""), target.state()) for target, _ in lists]
        items = [c.items for _, c, _ in before]
        try:
            for target, samples in lists:
                target.count_only(samples)
            run()
            lengths.extend(cast(as_traced(target.length()), np.int64) for target, _ in lists)
        finally:
            for (target, c, state), inside in zip(before, items, strict=True):
                target.set_state(state)
                c.restore(inside)

    region.run(block, variables)
    results = region.close(lengths).inline()
    for x in results:
        x.weak = "int"
    return results
