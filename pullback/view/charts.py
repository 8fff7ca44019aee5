"""The charts and tables of the page, from the reports on memory, time and residuals."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pullback.inspection.memory import Buffer, Memory
from pullback.inspection.profile import Profile
from pullback.inspection.profiled_step import ProfiledStep
from pullback.inspection.residuals import Residuals
from pullback.view.contents import Frame, GradientTable, MemoryChart, MemoryRow, ResidualRow, TimeChart
from pullback.view.graph import Graph
from pullback.view.places import Places

DIVIDED = "the time of a kernel that comes from several lines is divided by the work that each line has in it"
"""How the time of a line is computed."""


def memory_chart(report: Memory, graph: Graph, places: Places) -> MemoryChart:
    """Return the chart of a memory report."""
    buffers = (*report.temporaries, *report.results, *report.inputs, *report.constants, *report.stacks)
    return MemoryChart(
        headline=report.headline, arena_bytes=report.arena_bytes, unshared_bytes=report.unshared_bytes,
        peak_bytes=report.peak_bytes, allocated_bytes=report.allocated_bytes, steps=tuple(graph.of_step),
        buffers=tuple(_memory_row(b, places) for b in buffers),
    )  # fmt: skip


def _memory_row(b: Buffer, places: Places) -> MemoryRow:
    return MemoryRow(
        name=b.name, type=b.type, bytes=b.bytes, kind=b.part or b.role, op=b.op, at=places.of(b.loc), offset=b.offset,
        first=b.first, last=b.last, within=b.within,
    )  # fmt: skip


def time_chart(report: Profile, graph: Graph, places: Places) -> TimeChart:
    """Return the chart of a profile, whose frames add up to the time of a call."""
    frames = [frame for step in report.steps for frame in _frames(step, report, graph, places)]
    if report.control_seconds:
        frames.append(Frame(seconds=report.control_seconds, name="loops and branches besides their steps"))
    frames.append(Frame(seconds=report.outside_seconds, name="arguments and results"))
    return TimeChart(
        headline=report.headline, seconds=report.seconds, ordinary_seconds=report.ordinary_seconds, frames=tuple(frames),
        note=f"mean of {report.calls:,} calls; {DIVIDED}",
    )  # fmt: skip


def _frames(step: ProfiledStep, report: Profile, graph: Graph, places: Places) -> Iterator[Frame]:
    """Yield the times of the places of a step, in proportion to the least times of their work by the machine's limits."""
    node = graph.of_step[step.launch] if step.launch is not None else -1
    works: dict[int, float] = {}
    for line in step.cost.by_line if step.cost is not None else ():
        flops, functions, footprint = line.flops, line.functions, report.footprint
        least, _ = report.limits.seconds(bytes=line.bytes, flops=flops, functions=functions, footprint=footprint)
        at = places.of(line.loc)
        works[at] = works.get(at, 0.0) + least
    if not any(works.values()):
        works = dict.fromkeys(places.all_of(step.lines), 1.0) or {-1: 1.0}
    total = math.fsum(works.values())
    for at, share in works.items():
        yield Frame(seconds=step.seconds * share / total, at=at, node=node, name=step.name)


def gradient_table(report: Residuals, places: Places) -> GradientTable | None:
    """Return the table of a residuals report; None if no gradient is taken."""
    if not report.has_gradient:
        return None
    rows = [
        ResidualRow(
            name=r.name, type=r.type, bytes=r.bytes, op=r.op, at=places.of(r.loc), kept=r.kept, why=r.why,
            readers=places.all_of(r.readers),
        )
        for r in report.residuals
    ]  # fmt: skip
    rows += [
        ResidualRow(
            name=i.name, type=i.type, bytes=i.bytes, op="", at=-1, kept="input", why="", readers=places.all_of(i.readers)
        )
        for i in report.inputs
    ]  # fmt: skip
    ordered = tuple(sorted(rows, key=lambda r: (r.kept == "input", -r.bytes)))
    return GradientTable(headline=report.headline, rows=ordered, algorithm=report.algorithm)
