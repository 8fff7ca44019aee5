"""Prove that computed indices of loops are in range, that checks hold, and the signs of operands; write the other checks as the
accesses test them.

Each scalar of type i64 or bool has an interval. A comparison limits its operands where it decides: in a region of a ``switch``,
on a side of a ``select``, in the body of a ``while``; one of x + c with a constant limits x too. A carried integer that each
iteration changes by constants alone is monotonic, if these have one sign: its first value is a bound. Bounds of
another one are tried, see ``_next_bounds``: the end of the body must confirm them. After a check its condition holds, of which
other checks and divisions make use. (An access does not: passes may hoist it before the check.)

    %n: i64[] = const {value=50}                          %n: i64[] = const {value=50}
    %ok: bool[] = lt %i, %n                               ...
    check %ok {error=IndexError, ...}                ->
    %e: f64[] = gather %x, %i {axes=[0]}                  %e: f64[] = gather %x, %i {axes=[0], in_range=[0]}

(in the body of a ``while`` that goes on if i < 50 and starts with i = 0).

A check of both ends of an axis becomes ``is_index`` of the axis, whose code is that of the access: LLVM keeps one of the two.

    %low: i64[] = const {value=-50}                       %n: i64[] = count %x {axes=[0], shape=[50]}
    %a: bool[] = ge %i, %low                              %ok: bool[] = is_index %i, %n
    ...                                              ->
    %ok: bool[] = bitand %a, %b
    check %ok {error=IndexError, ...}                     check %ok {error=IndexError, ...}

A quotient or remainder of a number that is not negative by a positive one is marked ``natural``: its code has no cases.

A step of a carried integer is at most ``LONGEST_STEP``, so that it does not leave ``CARRIED`` in a run of days.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import BOOL as BOOL_TYPE
from pullback.ir.core.types import I64, ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Gather, RollBy, Scatter
from pullback.ir.ops.control.loops import Loop, Scan, Switch, While
from pullback.ir.ops.control.regions import Check, Gradient, Vmap
from pullback.ir.ops.elementwise.elementwise import floordiv, mod
from pullback.ir.passes.loops.integer_intervals import (
    ANY,
    BOOL,
    NEGATED,
    SWAPPED,
    Interval,
    compared,
    computed,
    fits,
    is_within,
    join,
    limited,
    meet,
)

LONGEST_STEP = 2**16
"""Largest change of a carried integer in an iteration for which it is taken to stay within ``CARRIED``: 2**46 iterations
would be needed to leave it."""
STEP: Interval = (-LONGEST_STEP, LONGEST_STEP)
CARRIED: Interval = (-(2**62), 2**62)
WIDE: Interval = (-(2**60), 2**60)
"""Bounds that a carried integer is tried with after closer ones: sums of some such numbers have 64 bits."""
DEEPEST = 24
"""Largest number of instructions from a condition, or from the next value of a carry, to a value that it is computed from."""
FITS = {"add_fits": "add", "sub_fits": "sub", "mul_fits": "mul"}
"""The ops of whether the result of another one has 64 bits."""
Bounds = dict[int, Interval]
"""The intervals of carried integers, by position."""
Fact = tuple[str, Value, Value]
"""A comparison of two i64 scalars that holds."""


def index_ranges(function: Function) -> Function:
    """Mark indices in range, and remove checks that hold.

    Requires: a func whose extents are ints, or names, about which nothing is proved. Keeps: values bit by bit, and the checks
    that can fail. Cost: four visits of a loop's body for each loop around it that carries integers of no constant steps.
    """
    instructions = list(walk(function.body))
    if not any(isinstance(i.op, Loop) for i in instructions) or any(isinstance(i.op, Vmap) for i in instructions):
        return function
    return replace(function, body=_Ranges(instructions).block(function.body)[0])


def _is_tracked(value: Value) -> bool:
    """Return whether a value has an interval."""
    t = value.type
    return isinstance(t, ArrayType) and not t.shape and t.dtype in (I64, BOOL_TYPE)


def _accesses(block: Block) -> dict[tuple[Value, Any], list[tuple[Value, int]]]:
    """Return the arrays and their axes that scalars are indices into, by scalar and extent."""
    accesses: dict[tuple[Value, Any], list[tuple[Value, int]]] = {}
    for i in block.instructions:
        if isinstance(i.op, Gather | Scatter) and not isinstance(i.op, RollBy):
            array = i.operands[0]
            for axis, index in zip(i.params["axes"], i.operands[1:], strict=False):
                if not index.type.shape:
                    accesses.setdefault((index, array.type.shape[axis]), []).append((array, axis))
    return accesses


def _next_bounds(tried: Sequence[Bounds], initial: Bounds, ends: Bounds) -> Bounds | None:
    """Return the bounds to try next of carried integers whose changes are unknown; None if the last ones stay.

    ``tried``: the bounds before, of which the first join all first values; ``initial``: the first values; ``ends``: what an
    iteration leaves within the last bounds. The second bounds are wide where an iteration leaves the first ones (widening), the
    third are what it then leaves (narrowing). (Cousot and Cousot, Abstract interpretation, POPL 1977.)
    """
    holds = all(is_within(ends[k], tried[-1][k]) for k in initial)
    match len(tried):
        case 1 if not holds:
            return {k: _widened(tried[0][k], ends[k]) for k in initial}
        case 2:
            return {k: join([initial[k], ends[k]]) for k in initial} if holds else dict.fromkeys(initial, ANY)
        case 3 if not holds:
            return tried[1]
    return None


def _widened(interval: Interval, end: Interval) -> Interval:
    """Return an interval whose ends are ``WIDE`` where another interval goes beyond them."""
    low = interval[0] if end[0] >= interval[0] else min(interval[0], WIDE[0])
    return low, interval[1] if end[1] <= interval[1] else max(interval[1], WIDE[1])


class _Ranges:
    """The intervals of a function. ``sources``: the values that parameters of regions are in every iteration;
    ``definitions``: the instructions of values; ``intervals``: of values that are no such parameters; ``checked``: closer
    intervals that hold after the checks before the current instruction, which an access that is marked for them must not be
    hoisted before, ``counts_checks``: whether ``of`` returns them; ``accesses``: of each block around the current instruction,
    see ``_accesses``, and the values that it defines later."""

    def __init__(self, instructions: Iterable[Instruction]) -> None:
        self.definitions: dict[Value, Instruction] = {}
        self.sources: dict[Value, Value] = {}
        self.intervals: dict[Value, Interval] = {}
        self.checked: dict[Value, Interval] = {}
        self.counts_checks = False
        self.accesses: list[tuple[Mapping[tuple[Value, Any], list[tuple[Value, int]]], set[Value]]] = []
        for i in instructions:
            self.definitions.update((v, i) for v in i.results)
            if isinstance(i.op, Loop):
                first = i.op.first(i.params)
                held = i.params["carried"] + i.params.get("sliced", 0)
                for region in i.regions:
                    pairs = zip(region.parameters[1 + held :], i.operands[first + held :], strict=True)
                    self.sources.update(pairs)
            elif isinstance(i.op, Switch | Gradient):
                for region in i.regions:
                    self.sources.update(zip(region.parameters, i.operands[isinstance(i.op, Switch) :], strict=True))

    def root(self, value: Value) -> Value:
        """Return the value that a parameter of regions is."""
        while value in self.sources:
            value = self.sources[value]
        return value

    def of(self, value: Value) -> Interval:
        """Return the interval of a value."""
        value = self.root(value)
        interval = self.intervals.get(value)
        if interval is None:
            constant = self.constant(value)
            interval = self.interval(constant) if constant else BOOL if value.type.dtype is BOOL_TYPE else ANY
        return meet(self.checked[value], interval) if self.counts_checks and value in self.checked else interval

    def of_checked(self, value: Value) -> Interval:
        """Return the interval of a value after the checks before."""
        with self.counting_checks():
            return self.of(value)

    @contextmanager
    def counting_checks(self) -> Iterator[None]:
        """Let intervals count what checks say."""
        before, self.counts_checks = self.counts_checks, True
        yield
        self.counts_checks = before

    # conditions

    def condition(self, value: Value) -> Value:
        """Return the bool that a number tested for 0 stands for."""
        for _ in range(DEEPEST):
            value = self.root(value)
            i = self.definitions.get(value)
            if i is None or not all(map(_is_tracked, i.operands)):
                return value
            if not (i.op.name == "cast" or (i.op.name == "ne" and self.is_constant(i.operands[1], 0))):
                return value
            value = i.operands[0]
        return value

    def constant(self, value: Value) -> Instruction | None:
        """Return the instruction of a constant."""
        i = self.definitions.get(self.root(value))
        return i if i is not None and isinstance(i.op, Constant) else None

    def key(self, value: Value) -> Value | Interval:
        """Return the value, or, so that equal constants have equal keys, the interval of a constant."""
        constant = self.constant(value)
        return value if constant is None else self.interval(constant)

    def is_constant(self, value: Value, content: int) -> bool:
        """Return whether a value is a certain constant."""
        i = self.constant(value)
        return i is not None and i.params["value"] == content

    def facts(self, value: Value, holds: bool, depth: int = 0) -> list[Fact]:
        """Return comparisons that hold where a condition is true, or false."""
        value = self.condition(value)
        i = self.definitions.get(value)
        if i is None or depth > DEEPEST:
            return []
        if i.op.name in NEGATED and all(_is_tracked(v) and v.type.dtype is I64 for v in i.operands):
            return self.moved((i.op.name if holds else NEGATED[i.op.name], self.root(i.operands[0]), self.root(i.operands[1])))
        if value.type.dtype is not BOOL_TYPE or value.type.shape:
            return []
        if i.op.name == "is_index" and holds and all(map(_is_tracked, i.operands)):
            extent, index = self.of(i.operands[1]), self.root(i.operands[0])
            return [("ge", index, self.literal(-extent[1])), ("lt", index, self.literal(extent[1]))]
        if i.op.name == ("bitand" if holds else "bitor"):
            return [fact for v in i.operands for fact in self.facts(v, holds, depth + 1)]
        if i.op.name == "bitnot":
            return self.facts(i.operands[0], not holds, depth + 1)
        if i.op.name == "select":
            test, decided, second = i.operands[0], i.operands[2 if holds else 1], i.operands[1 if holds else 2]
            if self.is_constant(decided, not holds) or self.condition(decided) is self.condition(test):
                return self.facts(test, holds, depth + 1) + self.facts(second, holds, depth + 1)
        if isinstance(i.op, Switch) and holds and len(i.regions) == 2:
            return self.facts_of_switch(i, value, depth)
        return []

    def moved(self, fact: Fact) -> list[Fact]:
        """Return a comparison that holds, and that of x where it compares x + c, which does not overflow, with a constant."""
        name, a, b = fact
        for relation, value, other in ((name, a, b), (SWAPPED[name], b, a)):
            base, by = self.offset(value)
            end = self.constant(other)
            if by and end is not None and is_within(self.of(base), CARRIED) and is_within(self.interval(end), CARRIED):
                return [fact, (relation, base, self.literal(int(end.params["value"]) - by))]
        return [fact]

    def offset(self, value: Value) -> tuple[Value, int]:
        """Return x and c of a value x + c, for a c of at most ``LONGEST_STEP``; 0 for c of another value."""
        i = self.definitions.get(self.root(value))
        if i is None or i.op.name not in ("add", "sub") or not all(map(_is_tracked, i.operands)):
            return value, 0
        for x, y in (i.operands, i.operands[::-1])[: 1 if i.op.name == "sub" else 2]:
            constant = self.constant(y)
            if constant is not None and is_within(self.interval(constant), STEP):
                return self.root(x), int(constant.params["value"]) * (-1 if i.op.name == "sub" else 1)
        return value, 0

    def literal(self, content: int) -> Value:
        """Return a constant for comparisons, which no instruction of the function defines."""
        b = Builder()
        value: Value = b.const(content, I64)
        self.definitions[value] = b.instructions[0]
        return value

    def facts_of_switch(self, i: Instruction, value: Value, depth: int) -> list[Fact]:
        """Return comparisons that hold where a result of a branch is true, which it is in one region only."""
        test, position = self.condition(i.operands[0]), i.results.index(value)
        if test.type.dtype is not BOOL_TYPE:
            return []
        for region, other, taken in ((i.regions[1], i.regions[0], True), (i.regions[0], i.regions[1], False)):
            result = other.results[position]
            if self.is_constant(result, False) or (taken and self.condition(result) is test):
                return self.facts(test, taken, depth + 1) + self.facts(region.results[position], True, depth + 1)
        return []

    @property
    def current(self) -> dict[Value, Interval]:
        """The intervals that are computed: with or without what checks say."""
        return self.checked if self.counts_checks else self.intervals

    def limit(self, facts: Sequence[Fact]) -> dict[Value, Interval | None]:
        """Limit intervals by comparisons that hold; return the intervals before."""
        before: dict[Value, Interval | None] = {}
        for name, a, b in (*facts, *facts):
            for relation, x, y in ((name, a, b), (SWAPPED[name], b, a)):
                before.setdefault(x, self.current.get(x))
                self.current[x] = limited(relation, self.of(x), self.of(y))
        return before

    def restore(self, before: dict[Value, Interval | None]) -> None:
        """Set intervals to what they were."""
        for value, interval in before.items():
            if interval is None:
                self.current.pop(value, None)
            else:
                self.current[value] = interval

    # instructions

    def block(self, block: Block) -> tuple[Block, list[Interval], list[Interval]]:
        """Return a block with its proofs, and the intervals of its results, without and with what its checks say."""
        later = {v for i in block.instructions for v in i.results}
        self.accesses.append((_accesses(block), later))
        before = dict(self.checked)
        instructions: list[Instruction] = []
        for i in block.instructions:
            instructions += self.instruction(i)
            later.difference_update(i.results)
        self.accesses.pop()
        plain = [self.of(v) if _is_tracked(v) else ANY for v in block.results]
        checked = [self.of_checked(v) if _is_tracked(v) else ANY for v in block.results]
        self.checked = before
        return replace(block, instructions=tuple(instructions)), plain, checked

    def instruction(self, i: Instruction) -> list[Instruction]:
        """Return an instruction with its proofs; none for a check that holds."""
        op = i.op
        if isinstance(op, Check):
            if self.of_checked(i.operands[0]) == (1, 1):
                return []
            result = self.check(i)
            with self.counting_checks():
                self.limit(self.facts(i.operands[0], True))
            return result
        if isinstance(op, Switch):
            return [self.switch(i)]
        if isinstance(op, Scan | While):
            return [self.loop(i)]
        if isinstance(op, Gradient):
            return [replace(i, regions=tuple(self.block(region)[0] for region in i.regions))]
        if isinstance(op, Gather | Scatter) and not isinstance(op, RollBy):
            return [self.proved(i)]
        if len(i.results) == 1 and _is_tracked(i.result) and not i.regions:
            self.intervals[i.result] = self.interval(i)
            with self.counting_checks():
                if any(self.root(v) in self.checked for v in i.operands):
                    self.checked[i.result] = self.interval(i)
                if op in (floordiv, mod) and self.of(i.operands[0])[0] >= 0 and self.of(i.operands[1])[0] > 0:
                    return [replace(i, params={"natural": True})]
        return [i]

    def check(self, i: Instruction) -> list[Instruction]:
        """Return a check; one that an index is in range as a check of ``is_index`` for an axis that it is into, which the access
        tests too: LLVM keeps the first of two equal tests."""
        compared_to = self.bounds(i.operands[0])
        if compared_to is None:
            return [i]
        index, least, past = compared_to
        accesses, later = self.accesses[-1]
        low, high = self.of(index)
        for extent in [e for e in (past, None if least is None else -least) if e is not None]:
            arrays = [a for a in accesses.get((index, extent), ()) if a[0] not in later]
            is_least = low >= -extent if least is None else least == -extent
            is_past = high < extent if past is None else past == extent
            if arrays and is_least and is_past:
                b = Builder(i.loc)
                array, axis = arrays[0]
                inside = b.is_index(index, b.count(array, axes=(axis,), shape=(extent,)))
                return [*b.instructions, replace(i, operands=(inside, *i.operands[1:]))]
        return [i]

    def bounds(self, condition: Value) -> tuple[Value, int | None, int | None] | None:
        """Return the integer, the least value and the one past the greatest that a condition compares an integer with; None for
        other conditions."""
        definition = self.definitions.get(condition)
        if definition is None:
            return None
        extent = self.constant(definition.operands[1]) if definition.op.name == "is_index" else None
        if extent is not None:
            past = int(extent.params["value"])
            return definition.operands[0], -past, past
        sides = [self.definitions.get(v) for v in definition.operands] if definition.op.name == "bitand" else [definition]
        ends: dict[str, int] = {}
        for side in sides:
            end = None if side is None or side.op.name not in ("ge", "lt") else self.constant(side.operands[1])
            if side is None or end is None or side.operands[0].type != ArrayType(I64) or side.op.name in ends:
                return None
            ends[side.op.name] = int(end.params["value"])
        index, *others = {side.operands[0] for side in sides if side is not None}
        return None if others else (index, ends.get("ge"), ends.get("lt"))

    def proved(self, i: Instruction) -> Instruction:
        """Return a read or write with the axes whose indices are in range."""
        axes, shape = i.params["axes"], i.operands[0].type.shape
        indices = zip(axes, i.operands[1:], strict=False)
        inside = {
            a for a, v in indices if _is_tracked(v) and isinstance(shape[a], int) and is_within(self.of(v), (0, shape[a] - 1))
        }
        inside |= set(i.params.get("in_range", ()))
        return replace(i, params={**i.params, "in_range": tuple(sorted(inside))}) if inside else i

    def interval(self, i: Instruction) -> Interval:
        """Return the interval of the result of an instruction."""
        name, operands = i.op.name, i.operands
        if isinstance(i.op, Constant):
            value = i.params["value"]
            return (int(value), int(value)) if isinstance(value, int | bool) else ANY
        is_bool = i.result.type.dtype is BOOL_TYPE
        unknown = BOOL if is_bool else ANY
        if not operands or not all(map(_is_tracked, operands)):
            return unknown
        intervals = [self.of(v) for v in operands]
        if name in NEGATED:
            return compared(name, *intervals)
        if name in FITS:
            return fits(FITS[name], intervals)
        if name == "is_index":
            extent = intervals[1][0]
            return (1, 1) if is_within(intervals[0], (-extent, extent - 1)) else BOOL
        if name == "select":
            return self.selected(*operands)
        if name == "cast":
            if is_bool and operands[0].type.dtype is I64:
                return compared("ne", intervals[0], (0, 0))
            return intervals[0]
        if is_bool and name in ("bitand", "bitor"):
            least = min if name == "bitand" else max
            return least(intervals[0][0], intervals[1][0]), least(intervals[0][1], intervals[1][1])
        if name == "bitnot":
            return (1 - intervals[0][1], 1 - intervals[0][0]) if is_bool else (~intervals[0][1], ~intervals[0][0])
        return unknown if is_bool else computed(name, intervals)

    def selected(self, test: Value, *sides: Value) -> Interval:
        """Return the interval of a select."""
        intervals = []
        decided = self.of(test)
        for side, holds in zip(sides, (True, False), strict=True):
            if int(holds) in decided or decided == BOOL:
                before = self.limit(self.facts(test, holds))
                intervals.append(self.of(side))
                self.restore(before)
        return join(intervals)

    def switch(self, i: Instruction) -> Instruction:
        """Return a branch with its proofs."""
        test, regions = self.condition(i.operands[0]), []
        rows: list[list[Interval]] = []
        checked_rows: list[list[Interval]] = []
        is_two_way = len(i.regions) == 2 and test.type.dtype is BOOL_TYPE
        for k, region in enumerate(i.regions):
            before = self.limit(self.facts(test, bool(k))) if is_two_way else {}
            inside, plain, checked = self.block(region)
            self.restore(before)
            regions.append(inside)
            rows.append(plain)
            checked_rows.append(checked)
        for value, column, closer in zip(i.results, zip(*rows, strict=True), zip(*checked_rows, strict=True), strict=True):
            if _is_tracked(value):
                self.intervals[value] = join(column)
                if closer != column:
                    self.checked[value] = join(closer)
        return replace(i, regions=tuple(regions))

    # loops

    def loop(self, i: Instruction) -> Instruction:
        """Return a loop with its proofs."""
        first, count, body = i.op.first(i.params), i.params["carried"], i.regions[-1]  # type: ignore[attr-defined]
        parameters, following = body.parameters[1 : 1 + count], body.results[:count]
        operands = i.operands[first : first + count]
        length = i.params.get("length", ())
        last = max(length[0] - 1 if length and isinstance(length[0], int) else CARRIED[1], 0)
        for region in i.regions:
            self.intervals[region.parameters[0]] = (0, last)
        carried = [k for k, p in enumerate(parameters) if _is_tracked(p) and p.type.dtype is I64]
        initial = {k: self.of(operands[k]) for k in carried}
        changes = {k: self.steps(following[k], parameters[k], {}) for k in carried}
        known = {k: self.reached(initial[k], changes[k], last) for k in carried}
        unknown = {k: self.of_checked(operands[k]) for k in carried if known[k] is None}
        bounds = {k: interval for k, interval in known.items() if interval is not None}
        tried: list[Bounds] = [dict.fromkeys(unknown, join([*unknown.values()])) if unknown else {}]
        while True:
            bounds |= tried[-1]
            regions, ends, checked = self.body(i, parameters, bounds)
            closer = _next_bounds(tried, unknown, {k: checked[k] for k in unknown})
            if closer is None:
                break
            tried.append(closer)
        for k in carried:
            limits = self.reached(initial[k], changes[k], last + 1) or bounds[k]
            is_proved = k not in unknown or is_within(join([initial[k], ends[k]]), limits)
            self.intervals[i.results[k]] = meet(join([initial[k], ends[k]]), limits if is_proved else ANY)
            self.checked[i.results[k]] = meet(join([unknown.get(k, initial[k]), checked[k]]), limits)
        return replace(i, regions=tuple(regions))

    def body(
        self, i: Instruction, parameters: Sequence[Value], bounds: Bounds
    ) -> tuple[list[Block], list[Interval], list[Interval]]:
        """Return the regions of a loop with its proofs, and the intervals of the carry after an iteration, without and with what
        checks say. ``bounds``: the intervals of the carried integers."""
        for region in i.regions:
            self.intervals.update((region.parameters[1 + k], interval) for k, interval in bounds.items())
        before = self.limit(self.facts_of_loop(i)) if isinstance(i.op, While) else {}
        block, ends, checked = self.block(i.regions[-1])
        self.restore(before)
        return [*(self.block(region)[0] for region in i.regions[:-1]), block], ends, checked

    def facts_of_loop(self, i: Instruction) -> list[Fact]:
        """Return comparisons of carried integers that hold at the start of each iteration of a ``while``: those of its
        condition, and of a carried condition those that are proved before the loop and that each iteration computes."""
        condition, body = i.regions
        count = i.params["carried"]
        positions = {p: k for k, p in enumerate(condition.parameters[1 : 1 + count])}
        test = self.condition(condition.results[0])
        if test not in positions:
            names = {p: body.parameters[1 + k] for p, k in positions.items()}
            facts = [(name, names.get(a, a), names.get(b, b)) for name, a, b in self.facts(test, True)]
            return [f for f in facts if self.is_about(f, body.parameters[1 : 1 + count])]
        k = positions[test]
        ends = {self.root(v): j for j, v in enumerate(body.results[:count])}
        assumed = {v: self.of(body.parameters[1 + j]) for v, j in ends.items() if _is_tracked(v) and not self.constant(v)}
        before = {v: self.intervals.get(v) for v in assumed}
        self.intervals.update(assumed)
        following = self.facts(body.results[k], True)
        self.restore(before)
        known = self.facts(i.operands[k], True)
        known += [(SWAPPED[name], b, a) for name, a, b in known]
        entry = {(name, self.key(a), self.key(b)) for name, a, b in known}
        facts = []
        for name, *sides in following:
            inside = [body.parameters[1 + ends[v]] if v in ends else v for v in sides]
            start = [self.root(i.operands[ends[v]]) if v in ends else v for v in sides]
            is_known = all(v in ends or self.constant(v) or self.is_outside(v, body) for v in sides)
            holds = (name, *map(self.key, start)) in entry or compared(name, *map(self.of, start)) == (1, 1)
            fact = (name, inside[0], inside[1])
            if is_known and holds and self.is_about(fact, body.parameters[1 : 1 + count]):
                facts.append(fact)
        return facts

    def is_outside(self, value: Value, body: Block) -> bool:
        """Return whether a value is the same in all iterations: a capture of a loop's body."""
        return any(self.root(p) is value for p in body.parameters if p in self.sources)

    def is_about(self, fact: Fact, carried: Sequence[Value]) -> bool:
        """Return whether a comparison is about a carried value. One about captures alone would prove that code is safe which
        later passes hoist out of the loop."""
        return fact[1] in carried or fact[2] in carried

    def reached(self, initial: Interval, change: tuple[float, float] | None, most: int) -> Interval | None:
        """Return the interval of a carried integer after at most ``most`` iterations, each of which changes it by constants,
        see ``steps``; None if they change it in another way."""
        if change is None or not is_within(initial, CARRIED):
            return None
        low, high = min(change[0], 0), max(change[1], 0)
        return (
            initial[0] if not low else max(CARRIED[0], initial[0] + int(low) * most) if math.isfinite(low) else CARRIED[0],
            initial[1] if not high else min(CARRIED[1], initial[1] + int(high) * most) if math.isfinite(high) else CARRIED[1],
        )

    def steps(
        self, value: Value, start: Value, memo: dict[Value, tuple[float, float] | None], depth: int = 0
    ) -> tuple[float, float] | None:
        """Return the least and the greatest difference of a value and ``start``, infinite for a change by any number of steps;
        None if it is computed in another way. ``memo``: those of other values."""
        value = self.root(value)
        if value is start:
            return 0, 0
        if value not in memo:
            memo[value] = None
            if depth <= DEEPEST:
                memo[value] = self.computed_steps(value, start, memo, depth + 1)
        return memo[value]

    def computed_steps(
        self, value: Value, start: Value, memo: dict[Value, tuple[float, float] | None], depth: int
    ) -> tuple[float, float] | None:
        """See ``steps``."""
        i = self.definitions.get(value)
        if i is None:
            return None
        position = i.results.index(value)
        if i.op.name in ("add", "sub"):
            for a, b in ((0, 1), (1, 0))[: 1 if i.op.name == "sub" else 2]:
                constant, before = self.constant(i.operands[b]), self.steps(i.operands[a], start, memo, depth)
                if before is not None and constant is not None and is_within(self.interval(constant), STEP):
                    step = int(constant.params["value"]) * (-1 if i.op.name == "sub" else 1)
                    return before[0] + step, before[1] + step
            return None
        if i.op.name == "select" or isinstance(i.op, Switch):
            results = i.operands[1:] if i.op.name == "select" else [r.results[position] for r in i.regions]
            sides = [self.steps(v, start, memo, depth) for v in results]
            known = [s for s in sides if s is not None]
            return (min(s[0] for s in known), max(s[1] for s in known)) if len(known) == len(sides) else None
        if isinstance(i.op, Loop) and position < i.params["carried"]:
            before = self.steps(i.operands[i.op.first(i.params) + position], start, memo, depth)
            inner = self.steps(i.regions[-1].results[position], i.regions[-1].parameters[1 + position], {}, depth)
            if before is None or inner is None:
                return None
            return before[0] + (-math.inf if inner[0] < 0 else 0), before[1] + (math.inf if inner[1] > 0 else 0)
        return None
