"""places: at how many places an element of one value is computed from elements of another, as neighbours in a stencil are.

A value that waits for nothing in memory is computed again at each of them, and what it is made of at each of its own: seven
neighbours of seven neighbours. A place is a chain of what moves elements (slices, padding, joints); two chains are two places.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reindex import Reindex, broadcast

MOST = 64
"""So many places are told apart; more are as good as too many."""

Place = tuple[Instruction, ...]
Places = frozenset[Place]
HERE: Places = frozenset({()})


def together(a: Places, b: Places) -> Places:
    """Places of both."""
    return a if a is b or len(a) >= MOST or b <= a else a | b


def behind(near: Places, far: Places) -> Places:
    """From each near place, all the far ones."""
    if far is HERE or near is HERE:
        return near if far is HERE else far
    return frozenset([a + b for a in near for b in far][:MOST])


class Reads:
    """What values are computed from, and where. ``through(v)``: what makes a value that its readers compute, else None."""

    def __init__(self, through: Callable[[Value], Instruction | None]) -> None:
        self.through = through
        self.known: dict[Value, dict[Value, Places]] = {}

    def of(self, value: Value) -> Mapping[Value, Places]:
        """The places of each value that is in memory, or a member of a group."""
        stack = [value]
        while stack:
            current = stack[-1]
            made = None if current in self.known else self.through(current)
            waiting = [v for v in made.operands if v not in self.known] if made is not None else []
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self.known.setdefault(current, {current: HERE} if made is None else self.joined(made))
        return self.known[value]

    def joined(self, made: Instruction) -> dict[Value, Places]:
        """The places of an instruction from those of its operands."""
        found: dict[Value, Places] = {}
        moves = isinstance(made.op, Reindex) and not made.op.view and made.op is not broadcast
        for operand in made.operands:
            for root, places in self.known[operand].items():
                there = behind(frozenset({(made,)}), places) if moves else places
                found[root] = together(found.get(root, there), there)
        return found

    def of_all(self, made: Instruction) -> dict[Value, Places]:
        """The places of what an instruction reads, whether its readers compute it or not."""
        return reduce(_merged, map(self.of, made.operands), {})


def _merged(found: dict[Value, Places], more: Mapping[Value, Places]) -> dict[Value, Places]:
    for root, places in more.items():
        found[root] = together(found.get(root, places), places)
    return found
