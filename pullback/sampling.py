"""Which sizes one program serves, and how its sizes and constants depend on the extents that a caller names.

A trace is of numbers. Traces at many points are compared: they must be one template, and a formula must give each size and
constant at all of them. Then the ends of what is served are looked for, extent by extent, and points in between are tried. So a
function whose Python code does something else for some sizes is refused, or its ends are known; what it does for a lone size
inside, which no trace met, cannot be seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.codegen.interface import Bounds
from pullback.ir import Function
from pullback.ir.classes import templated
from pullback.ir.extents import Abstract
from pullback.ir.formulas import Formula, Scaled, constant, fitted, fitted_number
from pullback.ir.text import canonical
from pullback.pipeline import Outcome, split_outcomes
from pullback.tracer import Trace, TraceError

LEAST, MOST = 64, 250
"""Between these lie the extents of the first traces: beyond what is made otherwise because it is small."""
LARGE = (1_000, 3_001, 10_000, 65_537, 1_000_000, 20_000_003)
MOST_ELEMENTS = 1 << 28
MOST_REPAIRS = 8

Number = Formula | Scaled | bool | int | float | complex


class Differs(Exception):
    """A point is served by another program. ``reason`` ends a sentence."""

    def __init__(self, reason: str, point: Mapping[str, int]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.point = dict(point)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A trace at a point. ``numbers``: the sizes of its template, then the extents of arguments and results, in order."""

    point: dict[str, int]
    trace: Trace
    leaves: list[Any]
    function: Function
    outcomes: tuple[Outcome, ...]
    found: Abstract

    @property
    def key(self) -> tuple[Any, ...]:
        """What must be the same at all points."""
        leaves = [np.ndim(leaf) for leaf in self.leaves]
        pinned = tuple((p.index, p.value) for p in self.trace.pinned)
        ranks = tuple(v.type.rank for v in self.trace.function.results)
        return canonical(self.found.function), tuple(leaves), repr(pinned), ranks, self.outcomes, self.trace.out_tree

    @property
    def numbers(self) -> list[int]:
        """All that a formula is looked for, but for constants."""
        arguments = [n for leaf in self.leaves for n in np.shape(leaf)]
        results = [n for v in self.trace.function.results for n in v.type.shape]
        return [*self.found.sizes.values(), *arguments, *results]


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """One program for a range of sizes. ``sizes``: those of the template; ``arguments`` and ``results``: shapes; ``constants``: its
    last parameters."""

    base: Sample
    bounds: tuple[Bounds, ...]
    sizes: tuple[tuple[str, Formula], ...]
    arguments: tuple[tuple[Formula, ...], ...]
    results: tuple[tuple[Formula, ...], ...]
    constants: tuple[Number, ...]


TraceAt = Callable[[Mapping[str, int]], tuple[Trace, list[Any]]]


def sampled(names: Sequence[str], trace_at: TraceAt, elements: Callable[[Mapping[str, int]], int]) -> Sampled:
    """The program that serves all sizes of these extents, as far as traces show. ``elements``: those of the largest array at a
    point. Raises Differs, and what a trace at the first point raises."""
    work = _Sampling(names, trace_at, elements)
    return work.run()


class _Sampling:
    def __init__(self, names: Sequence[str], trace_at: TraceAt, elements: Callable[[Mapping[str, int]], int]) -> None:
        self.names = names
        self.trace_at = trace_at
        self.elements = elements
        self.samples: list[Sample] = []
        self.formulas: list[Formula] = []
        self.constants: list[Number] = []

    def run(self) -> Sampled:
        points = list(self.points())
        self.samples.append(self.sample(points[0]))
        for point in points[1:]:
            self.add(point)
        self.fit()
        self.settle()
        bounds = tuple(Bounds(name=name, low=self.low(name), high=self.high(name)) for name in self.names)
        self.between(bounds)
        base = self.samples[0]
        rest = iter(self.formulas)
        sizes = tuple((name, next(rest)) for name in base.found.sizes)
        arguments = tuple(tuple(next(rest) for _ in np.shape(leaf)) for leaf in base.leaves)
        results = tuple(tuple(next(rest) for _ in v.type.shape) for v in base.trace.function.results)
        return Sampled(
            base=base, bounds=bounds, sizes=sizes, arguments=arguments, results=results, constants=tuple(self.constants)
        )

    def points(self) -> Sequence[dict[str, int]]:
        """The first points: one, those that differ from it in one extent, and more than a polynomial of degree 2 has terms."""
        rng = np.random.default_rng(7)
        count = len(self.names)
        if not count:
            return [{}]
        total = max(8, 4 + count + count * (count + 1) // 2)
        rows = [dict(zip(self.names, map(int, rng.choice(range(LEAST, MOST), count, replace=False)))) for _ in range(total)]
        base = rows[0]
        free = [n for n in range(LEAST, MOST) if n not in base.values()]
        apart = [{**base, name: free[7 * k + 3]} for k, name in enumerate(self.names)]
        return [base, *apart, *rows[1:]]

    def sample(self, point: Mapping[str, int]) -> Sample:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace, leaves = self.trace_at(point)
        function, outcomes = split_outcomes(trace)
        return Sample(
            point=dict(point), trace=trace, leaves=leaves, function=function, outcomes=outcomes, found=templated(function)
        )

    def same(self, point: Mapping[str, int]) -> Sample:
        """The sample at a point. Raises Differs where its program is another."""
        try:
            found = self.sample(point)
        except (TraceError, ValueError, TypeError, IndexError, ArithmeticError, MemoryError, np.linalg.LinAlgError) as error:
            raise Differs(f"there tracing fails: {error}", point) from None
        if found.key != self.samples[0].key:
            raise Differs("there the function is another program", point)
        return found

    def add(self, point: Mapping[str, int]) -> None:
        self.samples.append(self.same(point))

    def fit(self) -> None:
        """Formulas for all numbers of the samples. Raises Differs."""
        points = [s.point for s in self.samples]
        last = self.samples[-1]
        self.formulas = []
        for values in zip(*(s.numbers for s in self.samples), strict=True):
            found = constant(values[0]) if len(set(values)) == 1 else fitted(values, points)
            if found is None:
                raise Differs(f"a size is {values[0]} at {_shown(points[0])} and {values[-1]}", last.point)
            self.formulas.append(found)
        self.constants = []
        own = [Formula(((1, (name,)),)) for name in self.names]
        for values in zip(*(s.found.constants for s in self.samples), strict=True):
            self.constants.append(self.constant(values, points, [*own, *self.formulas]))

    def constant(self, values: Sequence[Any], points: Sequence[Mapping[str, int]], formulas: Sequence[Formula]) -> Number:
        if len({repr(v) for v in values}) == 1:
            found: Number = values[0]
            return found
        made: Formula | Scaled | None = None
        if all(type(v) is int for v in values):
            made = fitted(values, points)
        elif all(isinstance(v, int | float) for v in values):
            made = fitted_number([float(v) for v in values], points, dict.fromkeys(f for f in formulas if f.number is None))
        if made is None:
            raise Differs(f"a constant is {values[0]!r} at {_shown(points[0])} and {values[-1]!r}", points[-1])
        return made

    def agrees(self, point: Mapping[str, int]) -> bool:
        """Whether the program with its formulas is that of a point."""
        try:
            return self.matches(self.same(point))
        except Differs:
            return False

    def matches(self, sample: Sample) -> bool:
        if sample.numbers != [f.at(sample.point) for f in self.formulas]:
            return False
        pairs = zip(sample.found.constants, self.constants, strict=True)
        return all(repr(v) == repr(c.at(sample.point) if isinstance(c, Formula | Scaled) else c) or _equal(v, c, sample) for v, c in pairs)

    def settle(self) -> None:
        """More points, where quotients are rounded up and down; those that contradict a formula make another."""
        base = self.samples[0].point
        divisors = sorted({f.divisor for f in self.formulas if f.divisor > 1})
        extra = [{**base, name: 16 * d + k} for d in divisors for name in self.names for k in (-1, 0, 1)]
        extra += [{**base, name: MOST + 1 + k} for name in self.names for k in (0, 1)]
        for _ in range(MOST_REPAIRS):
            wrong = next((s for s in map(self.same, extra) if not self.matches(s)), None)
            if wrong is None:
                return
            self.samples.append(wrong)
            self.fit()
        raise Differs("there a size is not what it is elsewhere", self.samples[-1].point)

    def low(self, name: str) -> int:
        """The least value that is served, others as at the first point."""
        base = self.samples[0].point
        fails = -1
        for n in range(4):
            if self.agrees({**base, name: n}):
                return n
            fails = n
        good = base[name]
        while good - fails > 1:
            middle = (good + fails) // 2
            fails, good = (fails, middle) if self.agrees({**base, name: middle}) else (middle, good)
        return good

    def high(self, name: str) -> int | None:
        """The largest value that is served; None if there is none."""
        base = self.samples[0].point
        good, fails = base[name], 0
        for n in LARGE:
            if self.elements({**base, name: n}) > MOST_ELEMENTS:
                break
            if not self.agrees({**base, name: n}):
                fails = n
                break
            good = n
        if not fails:
            return None
        while fails - good > 1:
            middle = (good + fails) // 2
            good, fails = (middle, fails) if self.agrees({**base, name: middle}) else (good, middle)
        return good

    def between(self, bounds: Sequence[Bounds]) -> None:
        """Points in which several extents are small, large, equal or any. Raises Differs."""
        if not bounds:
            return
        rng = np.random.default_rng(11)
        ends = [(b.low, min(2_000, 2_000 if b.high is None else b.high)) for b in bounds]
        rows = [[low for low, _ in ends], [low + 1 if low < high else low for low, high in ends]]
        rows += [[int(rng.integers(low, high + 1)) for low, high in ends] for _ in range(6)]
        equal = max(low for low, _ in ends), min(high for _, high in ends)
        rows += [[n] * len(ends) for n in {equal[0], (equal[0] + equal[1]) // 2} if equal[0] <= n <= equal[1]]
        for row in rows:
            point = dict(zip(self.names, row, strict=True))
            if self.elements(point) <= MOST_ELEMENTS and not self.matches(self.same(point)):
                raise Differs("there a size or constant is not what it is elsewhere", point)


def _equal(value: Any, number: Number, sample: Sample) -> bool:
    made = number.at(sample.point) if isinstance(number, Formula | Scaled) else number
    return isinstance(value, int | float) and float(value) == made


def _shown(point: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={n}" for name, n in point.items())
