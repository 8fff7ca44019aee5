"""Mutable drafts of loops and switches: decomposed, changed and reassembled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, Scan, Switch, While


@dataclass(eq=False)
class Input:
    """An operand, and the parameter that it is bound to in each region."""

    operand: Value
    parameters: list[Value]


@dataclass(eq=False)
class Carry(Input):
    """A carried value: ``following`` is the body's result for the next iteration, ``result`` the loop's result."""

    following: Value
    result: Value


@dataclass(eq=False)
class Output:
    """A result that is not carried, and the value that each region yields for it."""

    values: list[Value]
    result: Value


@dataclass(eq=False)
class Draft:
    """A decomposed loop or switch. ``counted``: an operand before all others, the trip count of a scan or the index of a
    switch. ``bodies``: the instructions of each region. ``test``: the result of the condition of a while. ``trips``: the
    trip count that a while returns."""

    instruction: Instruction
    counted: list[Value]
    indices: list[Value]
    carries: list[Carry]
    sequences: list[Input]
    captures: list[Input]
    outputs: list[Output]
    bodies: list[list[Instruction]]
    test: list[Value] = field(default_factory=list)
    trips: list[Value] = field(default_factory=list)

    def done(self) -> Instruction:
        """Return the instruction, with its current results; regions that are unchanged are the same blocks."""
        op, old = self.instruction.op, self.instruction
        taken: list[Input] = [*self.carries, *self.sequences, *self.captures]
        regions = []
        for k, body in enumerate(self.bodies):
            index = self.indices[k : k + 1]
            parts = (*index, *(t.parameters[k] for t in taken)), tuple(body), tuple(self.yielded(k))
            before = old.regions[k]
            is_same = parts == (before.parameters, before.instructions, before.results)
            regions.append(before if is_same else Block(*parts))
        params = dict(old.params)
        if isinstance(op, Loop):
            params["carried"] = len(self.carries)
        if isinstance(op, Scan):
            params["sliced"] = len(self.sequences)
        operands = (*self.counted, *(t.operand for t in taken))
        results = (*(c.result for c in self.carries), *self.trips, *(g.result for g in self.outputs))
        return replace(old, operands=operands, results=results, params=params, regions=tuple(regions))

    def yielded(self, region: int) -> list[Value]:
        """Return the results of a region."""
        if isinstance(self.instruction.op, Switch):
            return [g.values[region] for g in self.outputs]
        if region < len(self.bodies) - 1:
            return self.test
        return [*(c.following for c in self.carries), *(g.values[0] for g in self.outputs)]

    def substitute(self, region: int, names: Mapping[Value, Value]) -> None:
        """Replace values that a region reads or yields; ``names`` maps old values to new ones."""
        if not names:
            return
        self.bodies[region] = [
            replace(i, operands=tuple(names.get(v, v) for v in i.operands)) if any(v in names for v in i.operands) else i
            for i in self.bodies[region]
        ]
        if isinstance(self.instruction.op, Switch):
            for g in self.outputs:
                g.values[region] = names.get(g.values[region], g.values[region])
        elif region < len(self.bodies) - 1:
            self.test = [names.get(v, v) for v in self.test]
        else:
            for c in self.carries:
                c.following = names.get(c.following, c.following)
            for g in self.outputs:
                g.values = [names.get(v, v) for v in g.values]

    def reads(self, region: int) -> set[Value]:
        """Return the values that a region reads or yields."""
        return {*self.yielded(region), *(v for i in self.bodies[region] for v in i.operands)}


def draft_of(instruction: Instruction, operands: Iterable[Value] | None = None) -> Draft:
    """Return a draft of a ``switch``, ``scan`` or ``while``, with other operands if ``operands`` is passed."""
    op, params, regions = instruction.op, instruction.params, instruction.regions
    values = list(instruction.operands if operands is None else operands)
    bodies = [list(region.instructions) for region in regions]
    columns = [list(region.parameters) for region in regions]
    if not isinstance(op, Loop):
        outputs = [Output([r.results[k] for r in regions], v) for k, v in enumerate(instruction.results)]
        captures = [Input(v, list(p)) for v, p in zip(values[1:], zip(*columns, strict=True), strict=True)]
        return Draft(instruction, values[:1], [], [], [], captures, outputs, bodies)
    first, carried, sliced = op.first(params), params["carried"], params.get("sliced", 0)
    rows = list(zip(*columns, strict=True))
    taken = list(zip(values[first:], map(list, rows[1:]), strict=True))
    yielded, results = regions[-1].results, list(instruction.results)
    trips = [results.pop(carried)] if isinstance(op, While) else []
    return Draft(
        instruction,
        values[:first],
        list(rows[0]),
        [Carry(v, p, yielded[k], results[k]) for k, (v, p) in enumerate(taken[:carried])],
        [Input(v, p) for v, p in taken[carried : carried + sliced]],
        [Input(v, p) for v, p in taken[carried + sliced :]],
        [Output([v], r) for v, r in zip(yielded[carried:], results[carried:], strict=True)],
        bodies,
        list(regions[0].results) if isinstance(op, While) else [],
        trips,
    )
