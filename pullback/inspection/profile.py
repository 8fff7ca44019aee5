"""The profile report: the time of each step of a call, with its work and memory traffic and the machine's limits.

The steps are timed natively, by a program that stores the clock between them (``runtime.program.profile``). Every figure of a
report is the mean of the same calls, so that the parts add up to the total.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.codegen.cpu.matmul.prepack.prepack import packs
from pullback.inspection.cost import KernelCost, cost_of
from pullback.inspection.machine_limits import Limits, limits, timed_program
from pullback.inspection.profiled_step import PARTS, Part, ProfiledStep
from pullback.inspection.provenance import Anatomy, dissect, is_forward, members, unmarked
from pullback.inspection.trace_events import trace_text
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction, walk
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.ops.program import Alloc, Launch
from pullback.programs.call import Call
from pullback.programs.pipeline import reused_parameters, typed_constants
from pullback.programs.report import Report, counted, paragraph, table
from pullback.runtime.program.profile import TimedExecutable, Times
from pullback.tracer import TraceError
from pullback.tracer.failures import raise_failure

if TYPE_CHECKING:
    from pullback.runtime.cuda.device import device as cuda_device
    from pullback.runtime.cuda.program.profile import TimedProgram
else:
    cuda_device = later("pullback.runtime.cuda.device.device")

MOST_SECONDS, MOST_CALLS, LEAST_CALLS = 0.3, 400, 3
"""Bounds of a profile: seconds of timed calls, and the largest and smallest number of calls."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Profile(Report):
    """Hold the time of a call, in seconds: the mean of several calls, the middle half by duration.

    Attributes
    ----------
    function : str
        The function with its transforms.
    steps : tuple of ProfiledStep
        The steps of the program.
    seconds : float
        The total, from the program's arguments to its results: the sum of the steps, of ``control_seconds`` and of
        ``outside_seconds``.
    control_seconds : float
        The time of loops and branches without their steps.
    outside_seconds : float
        The time before the first step and after the last, where results are created.
    ordinary_seconds : float or None
        The median of ordinary calls, without the clock between the steps but with the checks of arguments and guards; None if a
        call has effects, since it is then not repeated.
    calls : int
        The number of calls.
    footprint : int
        The bytes of all buffers, which determine the cache that they fit.
    limits : Limits
        The limits of the machine.
    headline : str
        The first line of the text.
    reads : int
        The number of times the clock is read in a call.

    See Also
    --------
    ProfiledStep : One step.
    Cost : The work of the steps.

    Examples
    --------
    >>> report = pb.value_and_grad(lambda x: np.sum(np.sin(x))).profile(np.ones(10_000))
    >>> report.calls >= 1
    True
    """

    function: str
    steps: tuple[ProfiledStep, ...]
    seconds: float
    control_seconds: float
    outside_seconds: float
    ordinary_seconds: float | None
    calls: int
    footprint: int
    limits: Limits

    def seconds_of(self, part: Part) -> float:
        """Return the time of the steps of one part."""
        return sum(s.seconds for s in self.steps if s.part == part)

    def against(self, limits: Limits) -> Profile:
        """Return the same times compared with other limits."""
        steps = tuple(_limited(step, limits, self.footprint) for step in self.steps)
        return replace(self, steps=steps, limits=limits)

    def chrome_trace(self, path: str | Path) -> None:
        """Write a trace for Perfetto and chrome://tracing, with one slice for each step.

        Steps in loops and branches are on a separate track, each one slice as long as all its runs together. Raises OSError.
        """
        Path(path).write_text(trace_text(self.function, self.steps, self.seconds, self.control_seconds))

    @property
    def headline(self) -> str:
        """The text's first line."""
        if not self.steps:
            return f"{self.function}: no steps"
        parts = [f"{part} {_us(self.seconds_of(part))}" for part in PARTS if self.seconds_of(part)]
        split = f" ({', '.join(parts)})" if len(parts) > 1 or parts[0].startswith("backward") else ""
        inside = sum(s.seconds for s in self.steps)
        return f"{self.function}: {_us(self.seconds)} us a call, of which {_us(inside)} in steps{split}"

    def __str__(self) -> str:
        lines = paragraph(self.headline, "")
        if not self.steps:
            return "\n".join(lines)
        header: tuple[str, ...] = ("step", "us", "%", "GB/s", "GFLOP/s", "of limit", "part", "lines and ops")
        rows: list[tuple[str, ...]] = [self._row(same) for same in _alike(self.steps)]
        if self.control_seconds:
            rows.append(("loops", *self._time(self.control_seconds), "", "", "", "", "loops and branches besides their steps"))
        rows.append(("outside", *self._time(self.outside_seconds), "", "", "", "", "arguments and results"))
        if all(step.part == "forward" for step in self.steps):
            header, rows = header[:6] + header[7:], [row[:6] + row[7:] for row in rows]
        lines += table(header, rows, right=header[1:6])
        lines += paragraph(f"mean of {counted(self.calls, 'call')}; {self._ordinary()}", "")
        return "\n".join([*lines, *paragraph(self._limits(), "")])

    def _row(self, same: Sequence[ProfiledStep]) -> tuple[str, ...]:
        first, seconds = same[0], sum(s.seconds for s in same)
        runs = sum(s.runs for s in same)
        name = f"{first.name} x{runs:,.4g}" if runs != 1 else first.name
        costs = [s.cost for s in same if s.cost is not None]
        numbers: tuple[str, ...] = ("", "", "")
        if costs and seconds:
            share = sum(s.share * s.seconds for s in same) / seconds
            rates = [sum(c.bytes for c in costs) / seconds / 1e9, sum(c.flops for c in costs) / seconds / 1e9]
            numbers = (*(f"{rate:.2f}" for rate in rates), f"{share:.0%} {first.limit}")
        return (name, *self._time(seconds), *numbers, first.part, first.words)

    def _time(self, seconds: float) -> tuple[str, str]:
        return _us(seconds), f"{100 * seconds / self.seconds:.0f}"

    def _ordinary(self) -> str:
        if self.ordinary_seconds is None:
            return "no ordinary calls were timed, as each has effects"
        subject = "an ordinary call, with its end waited for," if self.limits.where else "an ordinary call"
        return f"{subject} takes {_us(self.ordinary_seconds)} us, without {counted(self.reads, 'read')} of the clock"

    @property
    def reads(self) -> int:
        """The number of clock reads in a call."""
        return 2 + sum(1 if s.start is not None else 2 * round(s.runs) for s in self.steps)

    def _limits(self) -> str:
        limits = self.limits
        flops = " and ".join(f"{rate / 1e9:.0f} GFLOP/s of {dtype}" for dtype, rate in limits.flops.items())
        traffic = f"{limits.traffic_of(self.footprint) / 1e9:.0f} GB/s among the {self.footprint:,} bytes of this call"
        start = f"limits, {limits.source}, {limits.where or counted(limits.threads, 'thread')}"
        return f"{start}: {flops} in a product of matrices, {limits.functions / 1e9:.1f} G exp/s, {traffic}"


def _us(seconds: float) -> str:
    value = seconds * 1e6
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def _alike(steps: Sequence[ProfiledStep]) -> Iterator[list[ProfiledStep]]:
    """Group the steps whose rows differ only in their times."""
    groups: dict[Any, list[ProfiledStep]] = {}
    for step in steps:
        work = () if step.cost is None else (step.cost.flops, step.cost.functions, step.cost.bytes, step.cost.launches)
        groups.setdefault((step.name, step.part, step.words, work), []).append(step)
    yield from groups.values()


def profile(call: Call) -> Profile:
    """Return the profile of a call, which is made several times. Raises TraceError, and what the call raises."""
    anatomy = dissect(call)
    arguments = call.trace.arguments(call.leaves)
    if arguments is None:
        raise TraceError("a value from outside changed its type while the function was traced")
    if anatomy is None:
        return _empty(call)
    program = timed_program(anatomy.module, call.device, call.title)
    timed = program.program if isinstance(program, TimedExecutable) else anatomy.program
    steps = [i for i in walk(timed.body) if isinstance(i.op, Launch | Host)]
    donated = set(reused_parameters(anatomy.module, call.over).values())
    has_effects = bool(call.trace.has_effects or donated) or any(isinstance(i.op, Host) for i in steps)
    timings, ordinary = _measured(call, anatomy, program, arguments, donated, has_effects)
    return _report(call, anatomy, steps, timings, ordinary, frozenset(f.kernel for f in getattr(program, "fallbacks", ())))


def _empty(call: Call) -> Profile:
    ordinary = None if call.trace.has_effects else _median([_timed(call) for _ in range(LEAST_CALLS)])
    return Profile(
        function=call.title, steps=(), seconds=0.0, control_seconds=0.0, outside_seconds=0.0, ordinary_seconds=ordinary,
        calls=0, footprint=0, limits=limits(call.device),
    )  # fmt: skip


def _measured(
    call: Call, anatomy: Anatomy, program: TimedExecutable | TimedProgram, arguments: list[Any], donated: Collection[int],
    has_effects: bool,
) -> tuple[list[Times], float | None]:  # fmt: skip
    """Return the times of calls, and the median of ordinary calls interleaved with them.

    The first call of each kind, which may compile, is not counted, and neither is its time. Each call gets its own copies of
    the ``donated`` arguments, whose memory results reuse.
    """
    instance: Any = program.instance(anatomy.sizes)
    everything = [*arguments, *typed_constants(anatomy.abstract)]
    times: list[Times] = []
    ordinary: list[float] = []
    started = time.perf_counter()
    while len(times) <= LEAST_CALLS or (time.perf_counter() - started < MOST_SECONDS and len(times) < MOST_CALLS):
        if not has_effects:
            ordinary.append(_timed(call))
        copied = [np.array(a, order="C") if k in donated else a for k, a in enumerate(everything)]
        try:
            times.append(program.timed(instance, copied))
        except CheckFailed as failed:
            raise_failure(call.trace.function, failed, arguments, call.trace.errors)
        if len(times) == 1:
            started = time.perf_counter()
    middle = sorted(times[1:], key=lambda t: float(t.stamps[-1] - t.stamps[0]))
    quarter = len(middle) // 4
    return middle[quarter : len(middle) - quarter], _median(ordinary[1:]) if ordinary else None


def _timed(call: Call) -> float:
    start = time.perf_counter()
    result = call.make()
    if call.device != "cpu":
        cuda_device.device(call.device).synchronize()
    end = time.perf_counter()
    del result
    return end - start


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _report(
    call: Call, anatomy: Anatomy, steps: Sequence[Instruction], timings: Sequence[Times], ordinary: float | None,
    on_cpu: Collection[str],
) -> Profile:  # fmt: skip
    """Build the profile. ``on_cpu``: the kernels that the CPU runs for a device."""
    second = timings[0].second
    stamps = np.mean([t.stamps - t.stamps[0] for t in timings], axis=0) * second
    starts = np.mean([t.starts - t.stamps[0] for t in timings], axis=0) * second
    seconds = np.mean([t.laps for t in timings], axis=0) * second
    runs = np.mean([t.runs for t in timings], axis=0)
    has_driver = any(i.regions for i in anatomy.program.instructions)
    control = float(stamps[2] - stamps[1] - seconds.sum()) if has_driver else 0.0
    launches = iter(enumerate(anatomy.steps))
    profiled = []
    for k, i in enumerate(steps):
        start = None if has_driver else float(starts[k])
        launch, step = next(launches) if isinstance(i.op, Launch) and not packs(i) else (None, None)
        cost = None if step is None else _scaled(cost_of(anatomy, step), float(runs[k]) if has_driver else 1.0)
        source = step.source if step is not None else anatomy.sources[i.loc.line]
        timed = _step(anatomy, i, source, cost, float(seconds[k]), start, float(runs[k]) if has_driver else 1.0)
        name = f"{timed.name} on the CPU" if timed.name in on_cpu else timed.name
        profiled.append(replace(timed, name=name, launch=launch))
    footprint = sum(anatomy.bytes_of(v) for v in _buffers(anatomy))
    report = Profile(
        function=call.title, steps=tuple(profiled), seconds=float(stamps[-1]), control_seconds=control,
        outside_seconds=float(stamps[-1] - seconds.sum()) - control, ordinary_seconds=ordinary, calls=len(timings),
        footprint=footprint, limits=limits(call.device),
    )  # fmt: skip
    return report.against(report.limits)


def _buffers(anatomy: Anatomy) -> Iterator[Any]:
    count = len(anatomy.abstract.constants)
    yield from anatomy.program.parameters[: len(anatomy.program.parameters) - count]
    yield from (i.result for i in walk(anatomy.program.body) if isinstance(i.op, Alloc))


def _step(
    anatomy: Anatomy, i: Instruction, source: Instruction | None, cost: KernelCost | None, seconds: float, start: float | None,
    runs: float,
) -> ProfiledStep:  # fmt: skip
    all_ops = [] if source is None else list(members(source))
    lines = tuple(dict.fromkeys(loc for m in all_ops if (loc := unmarked(anatomy.loc(m)))))
    parts = {is_forward(anatomy.loc(m)) for m in all_ops if anatomy.loc(m)} or {True}
    part: Part = "both" if len(parts) > 1 else "forward" if True in parts else "backward"
    ops = cost.ops if cost is not None else ("pack",) if packs(i) else (i.op.name,)
    name = cost.kernel if cost is not None else i.params.get("kernel", i.op.name)
    return ProfiledStep(name=name, part=part, seconds=seconds, start=start, runs=runs, cost=cost, lines=lines, ops=ops)


def _scaled(cost: KernelCost, runs: float) -> KernelCost:
    """Scale a cost to the number of launches counted in the run."""
    if cost.launches == runs or not cost.launches:
        return cost
    factor = runs / cost.launches
    return replace(
        cost,
        counts={word: round(count * factor) for word, count in cost.counts.items()},
        bytes_read=round(cost.bytes_read * factor),
        bytes_written=round(cost.bytes_written * factor),
        calls={name: round(count * factor) for name, count in cost.calls.items()},
        by_line=tuple(
            replace(c, flops=round(c.flops * factor), functions=round(c.functions * factor), bytes=round(c.bytes * factor))
            for c in cost.by_line
        ),
        launches=round(runs),
    )


def _limited(step: ProfiledStep, limits: Limits, footprint: int) -> ProfiledStep:
    cost = step.cost
    if cost is None or not step.seconds:
        return step
    dtype = "f32" if cost.is_single else "f64"
    if step.start is None and step.runs:
        footprint = round(cost.bytes / step.runs)
    least, limit = limits.seconds(bytes=cost.bytes, flops=cost.flops, functions=cost.functions, footprint=footprint, dtype=dtype)
    return replace(step, share=least / step.seconds, limit=limit)
