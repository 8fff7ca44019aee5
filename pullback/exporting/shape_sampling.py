"""Find the range of sizes that one program serves, and its sizes and constants as formulas of the caller's named extents.

A trace has concrete sizes. Traces at many points are compared: they must be one template, and one formula must give each size
and constant at all of them. Then the bounds of the range are searched, extent by extent, and points in between are tested. A
function whose Python code depends on the size is thus refused, or its bounds are found; a special case for a single size
inside the range that was not traced goes unnoticed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.codegen.export.interface import Bounds
from pullback.ir import Function
from pullback.ir.core.records import dataclass
from pullback.ir.passes.size_classes import templated
from pullback.ir.shapes.extents import Abstract, abstract
from pullback.ir.shapes.formulas import Formula, Scaled, constant, fit_float, fit_integer
from pullback.ir.text import canonical
from pullback.programs.pipeline import Outcome, split_outcomes
from pullback.tracer import Captured, Constant, Trace, TraceError

LEAST, MOST = 64, 250
"""Range of the extents in the first traces: larger than the sizes that are treated specially for being small."""
LARGE = (1_000, 3_001, 10_000, 65_537, 1_000_000, 20_000_003)
"""Increasing extents tried in search of an upper bound."""
MOST_ELEMENTS, MOST_MADE = 1 << 26, 1 << 24
"""Largest argument, and largest array built from sizes, in elements, for which a trace is made."""
OFTEN = (
    5, 6, 7, 8, 9, 10, 12, 15, 16, 17, 20, 24, 25, 30, 31, 32, 33, 48, 50, 60, 63, 64, 65, 72, 96, 100, 120, 127, 128, 129, 144,
    192, 200, 250, 255, 256, 257, 300, 360, 500, 511, 512, 513, 768, 1000, 1023, 1024, 1025, 1920, 2000, 2048, 4095, 4096, 4097,
    5000, 8192, 10_000, 16_384, 60_000,
)  # fmt: skip
"""Sizes that Python code is likely to test for."""
MOST_REPAIRS = 8
"""Number of attempts to repair formulas or bounds."""
MOST_MIDDLE = 2_000
"""Largest extent of the test points inside the bounds."""

Number = Formula | Scaled | bool | int | float | complex


Filling = tuple[str, Any, Any]
"""The construction of an array that depends on sizes: kind, start and step, as in ``Fill``."""


def fill_of(array: Any) -> Filling | None:
    """Return the construction of an array that is a ramp or has a single diagonal; None for any other."""
    a = np.asarray(array)
    if a.dtype.kind not in "iuf" + "b" * (a.ndim == 2) or a.dtype.itemsize == 2 or not a.size or a.ndim not in (1, 2):
        return None
    if a.ndim == 1:
        if a.size < 3:
            return None
        start, step = a[0].item(), (a[1] - a[0]).item()
        filling: Filling = ("ramp", start, step)
    else:
        nonzero = np.argwhere(a)
        if not len(nonzero):
            return None
        row, column = map(int, nonzero[0])
        filling = ("diagonal", column - row, a[row, column].item())
    return filling if _alike(a, filled(filling, a)) else None


def filled(how: Filling, like: Any) -> Any:
    """Build the array of a filling, in the shape and dtype of ``like``."""
    kind, start, step = how
    a = np.asarray(like)
    if kind == "ramp" and a.ndim == 1:
        k = np.arange(a.size).astype(a.dtype)
        return k * a.dtype.type(step) + a.dtype.type(start)
    if kind == "diagonal" and a.ndim == 2:
        return np.eye(a.shape[0], a.shape[1], start, dtype=a.dtype) * a.dtype.type(step)
    return np.zeros(())


class Differs(Exception):
    """Raised if another program serves a point. ``reason`` ends a sentence."""

    def __init__(self, reason: str, point: Mapping[str, int]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.point = dict(point)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A trace at a point. ``loose`` is its abstract function in which all numbers are parameters."""

    point: dict[str, int]
    trace: Trace
    leaves: list[Any]
    function: Function
    outcomes: tuple[Outcome, ...]
    loose: Abstract

    @property
    def key(self) -> tuple[Any, ...]:
        """The properties that must be the same at all points."""
        ranks = [np.ndim(leaf) for leaf in self.leaves], [v.type.rank for v in self.trace.function.results]
        pinned = repr([(p.index, p.value) for p in self.trace.pinned])
        return canonical(self.loose.function), ranks, pinned, self.outcomes, self.trace.out_tree

    @functools.cached_property
    def outside(self) -> list[tuple[str, Any]]:
        """The arrays and numbers that are not arguments, with descriptions: they must be the same at all points."""
        values = []
        for source in self.trace.inputs:
            if isinstance(source, Captured):
                values.append((source.describe, source.read()))
            elif isinstance(source, Constant):
                values.append(("an array that the function makes without its arguments", source.array))
        return values

    @property
    def shapes(self) -> list[int]:
        """The extents of arguments and results, in order."""
        arguments = [n for leaf in self.leaves for n in np.shape(leaf)]
        return [*arguments, *(n for v in self.trace.function.results for n in v.type.shape)]

    @property
    def numbers(self) -> list[Any]:
        """All numbers that need a formula: extents, then constants."""
        return [*self.shapes, *self.loose.sizes.values(), *self.loose.constants]

    @functools.cached_property
    def abstract(self) -> Abstract:
        """The abstract function from which its template is built."""
        return templated(self.function, exactly=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Sampled:
    """One program for a range of sizes.

    ``sizes``: the sizes of the template; ``arguments`` and ``results``: shapes; ``constants``: its last parameters; ``fills``:
    how its outside arrays that depend on sizes are filled, by their positions.
    """

    base: Sample
    bounds: tuple[Bounds, ...]
    sizes: tuple[tuple[str, Formula], ...]
    arguments: tuple[tuple[Formula, ...], ...]
    results: tuple[tuple[Formula, ...], ...]
    constants: tuple[Number, ...]
    fills: Mapping[int, Filling]


TraceAt = Callable[[Mapping[str, int]], tuple[Trace, list[Any]]]


def sampled(names: Sequence[str], trace_at: TraceAt, elements: Callable[[Mapping[str, int]], int]) -> Sampled:
    """Return the program that serves all sizes of these extents, as far as traces show.

    ``elements``: the size of the largest array at a point. Raises Differs, and what a trace at the first point raises.
    """
    work = _Sampling(names, trace_at, elements)
    return work.run()


class _Sampling:
    def __init__(self, names: Sequence[str], trace_at: TraceAt, elements: Callable[[Mapping[str, int]], int]) -> None:
        self.names = names
        self.trace_at = trace_at
        self.elements = elements
        self.samples: list[Sample] = []
        self.formulas: list[Number] = []
        self.fills: dict[int, Filling] = {}

    def run(self) -> Sampled:
        points = list(self.points())
        base = self.first(points[0])
        self.samples.append(base)
        self.samples += map(self.matching_sample, points[1:])
        self.fit()
        self.refine()
        bounds = self.narrow_bounds([Bounds(name=name, low=self.lowest(name), high=self.highest(name)) for name in self.names])
        shapes = iter([f for f in self.formulas[: len(base.shapes)] if isinstance(f, Formula)])
        arguments = tuple(tuple(next(shapes) for _ in np.shape(leaf)) for leaf in base.leaves)
        results = tuple(tuple(next(shapes) for _ in v.type.shape) for v in base.trace.function.results)
        sizes, constants = self.of_template()
        return Sampled(
            base=base, bounds=bounds, sizes=sizes, arguments=arguments, results=results, constants=constants, fills=self.fills
        )

    def first(self, point: dict[str, int]) -> Sample:
        try:
            return self.sample(point)
        except TraceError as error:
            if point:
                error.add_note(f"  (traced with {_shown(point)}; extents that must be equal need one name)")
            raise
        except Exception as error:
            if not point:
                raise
            raise Differs(f"tracing fails: {error},", point) from error

    def of_template(self) -> tuple[tuple[tuple[str, Formula], ...], tuple[Number, ...]]:
        """Return the sizes and constants of the first point's template as formulas, from the samples that have that template.

        Where a number happens to be one that rewrites match, a sample has another template.
        """
        base = self.samples[0]
        key = canonical(base.abstract.function)
        alike = [base, *(s for s in self.samples[1:] if canonical(s.abstract.function) == key)]
        if len(alike) <= len(self.samples) // 2:
            raise Differs("it is optimised in another way", self.samples[-1].point)
        points = [s.point for s in alike]
        columns = [list(values) for values in zip(*(s.abstract.sizes.values() for s in alike), strict=True)]
        sizes = [self.formula("size", values, points) for values in columns]
        extents = [*sizes, *(f for f in self.formulas if isinstance(f, Formula))]
        columns = [list(values) for values in zip(*(s.abstract.constants for s in alike), strict=True)]
        constants = [self.formula("constant", values, points, extents) for values in columns]
        names = zip(base.abstract.sizes, sizes, strict=True)
        return tuple((name, f) for name, f in names if isinstance(f, Formula)), tuple(constants)

    def points(self) -> Sequence[dict[str, int]]:
        """Return the first points: one, those that differ from it in one extent, and more than a quadratic polynomial has
        coefficients."""
        rng = np.random.default_rng(7)
        count = len(self.names)
        if not count:
            return [{}]
        total = max(8, 4 + count + count * (count + 1) // 2)
        rows = [dict(zip(self.names, map(int, rng.choice(range(LEAST, MOST), count, replace=False)))) for _ in range(total)]
        base = rows[0]
        free = [n for n in range(LEAST, MOST) if n not in base.values()]
        variations = [{**base, name: free[7 * k + 3]} for k, name in enumerate(self.names)]
        return [base, *variations, *rows[1:]]

    def sample(self, point: Mapping[str, int]) -> Sample:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trace, leaves = self.trace_at(point)
        function, outcomes = split_outcomes(trace)
        loose = abstract(function, loose=True)
        return Sample(point=dict(point), trace=trace, leaves=leaves, function=function, outcomes=outcomes, loose=loose)

    def matching_sample(self, point: Mapping[str, int]) -> Sample:
        """Return the sample at a point. Raises Differs if its program is another."""
        try:
            sample = self.sample(point)
        except (TraceError, ValueError, TypeError, IndexError, ArithmeticError, MemoryError, np.linalg.LinAlgError) as error:
            raise Differs(f"tracing fails: {error},", point) from None
        if sample.key != self.samples[0].key:
            raise Differs("it is another one", point)
        for k, (name, value) in enumerate(sample.outside):
            first = self.samples[0].outside[k][1]
            if k in self.fills:
                if not _alike(value, filled(self.fills[k], value)):
                    raise Differs(f"{name} is filled otherwise", point)
            elif value is not first and not _alike(value, first):
                filling = fill_of(first)
                if filling is None or not _alike(value, filled(filling, value)):
                    raise Differs(f"{name} is another one, of shape {np.shape(value)},", point)
                self.fills[k] = filling
        return sample

    def is_heavy(self, point: Mapping[str, int]) -> bool:
        """Return whether a trace would need arrays too large to build: arguments, or arrays that the function builds from
        sizes."""
        base = self.samples[0]
        largest = max((np.size(value) for k, (_, value) in enumerate(base.outside) if k in self.fills), default=0)
        growth = max((point[name] / base.point[name] for name in self.names), default=1)
        return self.elements(point) > MOST_ELEMENTS or largest * max(growth, 1) ** 2 > MOST_MADE

    def fit(self) -> None:
        """Fit a formula in the named extents to every size and constant of the samples. Raises Differs."""
        points = [s.point for s in self.samples]
        count = len(self.samples[0].shapes) + len(self.samples[0].loose.sizes)
        columns = [list(values) for values in zip(*(s.numbers for s in self.samples), strict=True)]
        sizes = [self.formula("size", values, points) for values in columns[:count]]
        constants = [self.formula("constant", values, points, sizes) for values in columns[count:]]
        self.formulas = [*sizes, *constants]

    def formula(
        self, kind: str, values: Sequence[Any], points: Sequence[Mapping[str, int]], sizes: Sequence[Number] = ()
    ) -> Number:
        """Return a formula that gives these values at these points. Raises Differs."""
        if len({repr(v) for v in values}) == 1:
            fixed: Number = constant(values[0]) if kind == "size" else values[0]
            return fixed
        fitting: Formula | Scaled | None = None
        if all(type(v) is int for v in values):
            fitting = fit_integer(values, points)
        elif all(isinstance(v, int | float) for v in values):
            extents = [Formula(((1, (name,)),)) for name in self.names]
            symbolic = [f for f in sizes if isinstance(f, Formula) and f.constant_value is None]
            fitting = fit_float([float(v) for v in values], points, dict.fromkeys([*extents, *symbolic]))
        if fitting is None:
            k = next(k for k, v in enumerate(values) if repr(v) != repr(values[0]))
            reason = f"a {kind} of its is {values[0]!r} with {_shown(points[0])} and {values[k]!r}, by no simple formula,"
            raise Differs(reason, points[k])
        return fitting

    def serves(self, point: Mapping[str, int]) -> bool:
        """Return whether the program with its formulas serves a point."""
        try:
            return self.matches(self.matching_sample(point))
        except Differs:
            return False

    def matches(self, sample: Sample) -> bool:
        return all(_equal(v, f, sample.point) for v, f in zip(sample.numbers, self.formulas, strict=True))

    def refine(self) -> None:
        """Check further points, where quotients round up and down; refit with those that contradict a formula. Raises Differs."""
        base = self.samples[0].point
        divisors = sorted({f.divisor for f in self.formulas if isinstance(f, Formula) and f.divisor > 1})
        extra = [{**base, name: 16 * d + k} for d in divisors for name in self.names for k in (-1, 0, 1)]
        extra += [{**base, name: MOST + 1 + k} for name in self.names for k in (0, 1)]
        for _ in range(MOST_REPAIRS):
            wrong = next((s for s in map(self.matching_sample, extra) if not self.matches(s)), None)
            if wrong is None:
                return
            self.samples.append(wrong)
            self.fit()
        raise Differs("a size is not what it is elsewhere,", self.samples[-1].point)

    def lowest(self, name: str) -> int:
        """Return the smallest value that is served, with the other extents as at the first point."""
        base = self.samples[0].point
        fails = -1
        for n in range(4):
            if self.serves({**base, name: n}):
                return n
            fails = n
        good = base[name]
        while good - fails > 1:
            middle = (good + fails) // 2
            fails, good = (fails, middle) if self.serves({**base, name: middle}) else (middle, good)
        return good

    def highest(self, name: str) -> int | None:
        """Return the largest value that is served; None if unlimited."""
        base = self.samples[0].point
        good, fails = base[name], 0
        for n in LARGE:
            if self.is_heavy({**base, name: n}):
                break
            if not self.serves({**base, name: n}):
                fails = n
                break
            good = n
        if not fails:
            return None
        while fails - good > 1:
            middle = (good + fails) // 2
            good, fails = (middle, fails) if self.serves({**base, name: middle}) else (good, middle)
        return good

    def narrow_bounds(self, bounds: list[Bounds]) -> tuple[Bounds, ...]:
        """Return bounds within which points with several small, large, equal or random extents are served.

        If a point with a small extent is not served, the lower bound of that extent is raised. Raises Differs.
        """
        for _ in range(MOST_REPAIRS):
            wrong = next((point for point in self.points_inside(bounds) if not self.serves(point)), None)
            if wrong is None:
                return tuple(bounds)
            least = min(wrong.values())
            raised = [replace(b, low=least + 1) if wrong[b.name] == least and b.low <= least < LEAST - 1 else b for b in bounds]
            if raised == bounds:
                break
            bounds = raised
        point = next(point for point in self.points_inside(bounds) if not self.serves(point))
        self.matching_sample(point)
        raise Differs("a size or a constant is not what it is elsewhere,", point)

    def points_inside(self, bounds: Sequence[Bounds]) -> Iterator[dict[str, int]]:
        """Yield points within bounds, the smallest first."""
        if not bounds:
            return
        rng = np.random.default_rng(11)
        ends = [(b.low, min(MOST_MIDDLE, MOST_MIDDLE if b.high is None else b.high)) for b in bounds]
        rows = [[low for low, _ in ends], [min(low + 1, high) for low, high in ends]]
        first, last = max(low for low, _ in ends), min(high for _, high in ends)
        rows += [[n] * len(ends) for n in (first, (first + last) // 2) if first <= n <= last]
        rows += [[int(rng.integers(low, high + 1)) for low, high in ends] for _ in range(6)]
        for row in rows:
            point = dict(zip(self.names, row, strict=True))
            if not self.is_heavy(point):
                yield point
        for name, (low, _), b in zip(self.names, ends, bounds, strict=True):
            for n in OFTEN:
                point = {**self.samples[0].point, name: n}
                if n >= low and (b.high is None or n <= b.high) and not self.is_heavy(point):
                    yield point


def _equal(value: Any, formula: Number, point: Mapping[str, int]) -> bool:
    """Return whether a number of a sample equals its formula at a point."""
    if isinstance(formula, Formula | Scaled):
        return isinstance(value, int | float) and float(value) == formula.at(point)
    return repr(value) == repr(formula)


def _alike(a: Any, b: Any) -> bool:
    """Return whether two arrays or numbers have the same bits."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def _shown(point: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={n}" for name, n in point.items())
