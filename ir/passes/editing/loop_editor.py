"""A loop or switch taken apart, to be changed and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pullback.ir.core.structure import Block, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.control.loops import Loop, Scan, Switch, While


@dataclass(eq=False)
class Taken:
    """An operand, and the parameter that stands for it in each region."""

    operand: Value
    parameters: list[Value]


@dataclass(eq=False)
class Carry(Taken):
    """A carried value: what the body hands on, and the loop's result."""

    following: Value
    result: Value


@dataclass(eq=False)
class Given:
    """A result that is not carried, and what the regions yield for it."""

    values: list[Value]
    result: Value


@dataclass(eq=False)
class Draft:
    """``counted``: an operand before all others, the count of a scan or the index of a switch. ``bodies``: the instructions of
    each region. ``test``: what the condition of a while yields. ``trips``: the count of runs that a while gives."""

    instruction: Instruction
    counted: list[Value]
    indices: list[Value]
    carries: list[Carry]
    sequences: list[Taken]
    captures: list[Taken]
    given: list[Given]
    bodies: list[list[Instruction]]
    test: list[Value] = field(default_factory=list)
    trips: list[Value] = field(default_factory=list)

    def done(self) -> Instruction:
        """The instruction, with results as they are now."""
        op, old = self.instruction.op, self.instruction
        taken: list[Taken] = [*self.carries, *self.sequences, *self.captures]
        regions = []
        for k, body in enumerate(self.bodies):
            index = self.indices[k : k + 1]
            yielded = self.yielded(k)
            regions.append(Block((*index, *(t.parameters[k] for t in taken)), tuple(body), tuple(yielded)))
        params = dict(old.params)
        if isinstance(op, Loop):
            params["carried"] = len(self.carries)
        if isinstance(op, Scan):
            params["sliced"] = len(self.sequences)
        operands = (*self.counted, *(t.operand for t in taken))
        results = (*(c.result for c in self.carries), *self.trips, *(g.result for g in self.given))
        return replace(old, operands=operands, results=results, params=params, regions=tuple(regions))

    def yielded(self, region: int) -> list[Value]:
        """What a region yields."""
        if isinstance(self.instruction.op, Switch):
            return [g.values[region] for g in self.given]
        if region < len(self.bodies) - 1:
            return self.test
        return [*(c.following for c in self.carries), *(g.values[0] for g in self.given)]

    def substitute(self, region: int, names: Mapping[Value, Value]) -> None:
        """Read other values in a region."""
        if not names:
            return
        self.bodies[region] = [
            replace(i, operands=tuple(names.get(v, v) for v in i.operands)) if any(v in names for v in i.operands) else i
            for i in self.bodies[region]
        ]
        if isinstance(self.instruction.op, Switch):
            for g in self.given:
                g.values[region] = names.get(g.values[region], g.values[region])
        elif region < len(self.bodies) - 1:
            self.test = [names.get(v, v) for v in self.test]
        else:
            for c in self.carries:
                c.following = names.get(c.following, c.following)
            for g in self.given:
                g.values = [names.get(v, v) for v in g.values]

    def reads(self, region: int) -> set[Value]:
        """The values that a region reads or yields."""
        return {*self.yielded(region), *(v for i in self.bodies[region] for v in i.operands)}


def drafted(instruction: Instruction, operands: Iterable[Value] | None = None) -> Draft:
    """A ``switch``, ``scan`` or ``while`` taken apart, on other operands if they are given."""
    op, params, regions = instruction.op, instruction.params, instruction.regions
    values = list(instruction.operands if operands is None else operands)
    bodies = [list(region.instructions) for region in regions]
    columns = [list(region.parameters) for region in regions]
    if not isinstance(op, Loop):
        given = [Given([r.results[k] for r in regions], v) for k, v in enumerate(instruction.results)]
        captures = [Taken(v, list(p)) for v, p in zip(values[1:], zip(*columns, strict=True), strict=True)]
        return Draft(instruction, values[:1], [], [], [], captures, given, bodies)
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
        [Taken(v, p) for v, p in taken[carried : carried + sliced]],
        [Taken(v, p) for v, p in taken[carried + sliced :]],
        [Given([v], r) for v, r in zip(yielded[carried:], results[carried:], strict=True)],
        bodies,
        list(regions[0].results) if isinstance(op, While) else [],
        trips,
    )
