"""The table of a run, in Markdown, and its geometric means."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.case import Case, Target
from benchmarks.cases import CASES
from benchmarks.peers import AD, HAND, KEPT

GOALS = Target(ad=0.45, hand=0.75, limit=1.7)
OTHERWISE = 1.05
NO_LIMIT = ("heat", "index/sort")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line: ours, the best of each kind by name, and what is aimed at."""

    label: str
    threads: int
    ours: float
    ad: tuple[str, float] | None
    hand: tuple[str, float] | None
    numpy: float | None
    limit: float
    target: Target | None
    kept: tuple[str, float] | None = None

    @property
    def ratios(self) -> dict[str, float]:
        """Ours divided by the best AD system, the best by hand, the limit; where there are such."""
        result = {"ad": self.ad and self.ad[1], "hand": self.hand and self.hand[1], "limit": self.limit}
        return {name: self.ours / seconds for name, seconds in result.items() if seconds}

    @property
    def goals(self) -> dict[str, float]:
        """The targets of the row; without any, no peer may be ahead of us by more than noise."""
        if self.target is None:
            return {"ad": OTHERWISE, "hand": OTHERWISE}
        return {name: goal for name in ("ad", "hand", "limit") if (goal := getattr(self.target, name)) is not None}

    def misses(self) -> dict[str, float]:
        return {name: ratio for name, ratio in self.ratios.items() if ratio > self.goals.get(name, math.inf)}


def best(seconds: dict[str, float], names: Iterable[str]) -> tuple[str, float] | None:
    result = [(name, seconds[name]) for name in names if name in seconds]
    return min(result, key=lambda item: item[1], default=None)


def row_of(case: Case, dtype: str, result: dict[str, Any]) -> Row:
    seconds = result["seconds"]
    return Row(
        label=case.label(dtype),
        threads=result["threads"],
        ours=seconds["pullback"],
        ad=best(seconds, AD),
        hand=best(seconds, HAND),
        kept=best(seconds, KEPT),
        numpy=seconds.get("numpy"),
        limit=max(result["limit"].values(), default=0.0),
        target=case.targets.get(dtype),
    )


def rows(results: dict[str, Any], threads: int) -> Iterator[Row]:
    """In the order of the cases; those that were not measured, or not by us, are left out."""
    for case in CASES:
        for dtype in case.dtypes:
            result = results.get(f"{case.label(dtype)}@{threads}")
            if result and "pullback" in result["seconds"]:
                yield row_of(case, dtype, result)


def span(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def ratio_cell(row: Row, name: str) -> str:
    """The ratio, and the target that it misses or meets."""
    if name not in row.ratios:
        return ""
    ratio, goal = row.ratios[name], row.goals.get(name) if row.target else None
    aim = f" (≤ {goal:g})" if goal is not None else ""
    return f"**{ratio:.2f}**{aim}" if name in row.misses() else f"{ratio:.2f}{aim}"


def line(row: Row) -> str:
    ad, hand = row.ad[0] if row.ad else "", row.hand[0] if row.hand else ""
    cells = [
        row.label,
        span(row.ours),
        ad,
        ratio_cell(row, "ad"),
        hand,
        ratio_cell(row, "hand"),
        ratio_cell(row, "limit"),
        span(row.numpy),
    ]
    return f"| {' | '.join(cells)} |"


def geometric(values: Iterable[float]) -> float:
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def means(chosen: list[Row]) -> dict[str, float]:
    result = {name: geometric(row.ratios[name] for row in chosen if name in row.ratios) for name in ("ad", "hand")}
    bounded = [row for row in chosen if "limit" in row.ratios and not row.label.startswith(NO_LIMIT)]
    return {**result, "limit": geometric(row.ratios["limit"] for row in bounded)}


def aims(chosen: list[Row]) -> str:
    """How many rows are where they should be."""
    aimed = [row for row in chosen if row.goals]
    met = sum(not row.misses() for row in aimed)
    return f"{met} of {len(aimed)} rows with an aim are at or below it; others are bold."


def summary(chosen: list[Row]) -> list[str]:
    """Geometric means over the rows with targets, and over all."""
    lines = ["| geometric mean | ours / best AD | ours / best by hand | ours / limit |", "| --- | --- | --- | --- |"]
    for title, some in (("rows with a target", [r for r in chosen if r.target]), ("all rows", chosen)):
        result = means(some)
        cells = [f"{result[name]:.2f} (≤ {getattr(GOALS, name):g})" for name in ("ad", "hand", "limit")]
        lines.append(f"| {title} ({len(some)}) | {' | '.join(cells)} |")
    return [*lines, "", aims(chosen)]


SLACK_BYTES = 300_000
EXPLANATION = """Times are medians of the quietest burst, the systems by turns in one process; results were first compared
with NumPy's in float64. `ours / it` below 1: pullback is faster; in brackets the aim, bold where it is missed. `limit`: the
largest of the bytes at the bandwidth measured beside for that mix of reads and writes, the flops at the peak of
multiply-adds, and libmvec's calls. NumPy arrays in, NumPy arrays out; C and Numba write into arrays made once, all others
make new ones, and so does Numba where a call is shorter than it takes to make one (`small`)."""
MARKS = ("<!-- benchmarks -->", "<!-- end of benchmarks -->")
HEADER = [
    "| workload / case | ours | best AD | ours / it | best by hand | ours / it | ours / limit | NumPy |",
    "| --- | --- | --- | --- | --- | --- | --- | --- |",
]


def memory_lines(peaks: dict[str, dict[str, int]]) -> list[str]:
    """Peaks of memory beyond inputs and outputs; bold where JAX needs less by more than a page or two."""
    lines = ["## Peak memory beyond inputs and outputs, MB", "", "| workload / case | pullback | JAX |", "| --- | --- | --- |"]
    for label, beyond in peaks.items():
        ours, theirs = beyond["pullback"], beyond.get("jax")
        cell = f"{ours / 1e6:.1f}"
        over = theirs is not None and ours > theirs + SLACK_BYTES
        lines.append(f"| {label} | {f'**{cell}**' if over else cell} | {'' if theirs is None else f'{theirs / 1e6:.1f}'} |")
    return [*lines, ""]


def about_lines(about: dict[str, Any]) -> list[str]:
    names = ", ".join(f"{name} {count}" for name, count in about["versions"].items())
    return [f"`make bench` on {about['processor']}; {names}.", "", EXPLANATION, ""]


def kept_lines(chosen: list[Row]) -> list[str]:
    """Ours against the loops that write into an array made once, where the table has those that make one."""
    result = [f"{row.label} {row.ours / row.kept[1]:.2f}" for row in chosen if row.kept]
    return [f"Against Numba's loop into an array made once: {', '.join(result)}.", ""] if result else []


def threads_lines(report: dict[str, Any], threads: int) -> list[str]:
    chosen = list(rows(report["results"], threads))
    parts = [f"## {threads} thread{'s' if threads > 1 else ''}", "", *summary(chosen), "", *HEADER, *map(line, chosen), ""]
    parts += kept_lines(chosen)
    if limits := report.get("machine", {}).get(str(threads)):
        parts += ["The machine alone: " + ", ".join(f"{name} {value:.3g}" for name, value in limits.items()) + ".", ""]
    return parts


def markdown(report: dict[str, Any]) -> str:
    parts = ["# Pullback beside other systems", "", *about_lines(report["about"])]
    for threads in sorted({result["threads"] for result in report["results"].values()}):
        parts += threads_lines(report, threads)
    if report.get("memory"):
        parts += memory_lines(report["memory"])
    return "\n".join(parts)


SHORT = (
    "black_scholes/grad-n1e6-float64", "chain/grad-n1e7-float64", "layernorm/grad-8192x768-float32",
    "logreg/grad-1e5x100-float64", "mlp/grad-b1024-float32", "gelu_mm/grad-1024-float32", "matmul/fwd-512x512x512-float32",
    "nbody/grad-2000-float32",
    "lstm/grad-T64-float64", "heat/grad-512-100-float64", "steps/sums_loop-500-float64", "small/rosen_grad-n2-float64",
)  # fmt: skip
"""The rows of the short table, of README.md: one of each kind, also where another system is faster."""


def short(report: dict[str, Any], threads: int) -> str:
    """The rows of SHORT, and the means of all."""
    chosen = list(rows(report["results"], threads))
    some = [row for row in chosen if row.label in SHORT]
    title = f"{threads} thread{'s' if threads > 1 else ''} of {report['about']['processor'].split(' x ')[-1]}"
    return "\n".join([f"{title}:", "", *HEADER, *map(line, some), "", *summary(chosen)])


def with_short(page: str, report: dict[str, Any], threads: int) -> str:
    """The page with its block between MARKS written anew."""
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return f"{before}{MARKS[0]}\n{short(report, threads)}\n{MARKS[1]}{after}"
