"""Write a profile in the trace event format, which Perfetto and chrome://tracing read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from pullback.inspection.profiled_step import ProfiledStep
from pullback.programs.report import places

CALL, INSIDE = 1, 2
"""The tracks: one for the call, one for the steps in loops and branches."""


def trace_text(function: str, steps: Sequence[ProfiledStep], seconds: float, control_seconds: float) -> str:
    """Return the trace of a profiled call of a function, as JSON. Times in it are in microseconds."""
    events = list(_events(function, steps, seconds, control_seconds))
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}, indent=1) + "\n"


def _events(function: str, steps: Sequence[ProfiledStep], seconds: float, control_seconds: float) -> Iterator[dict[str, Any]]:
    yield {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": f"pullback: {function}"}}
    yield {"name": "thread_name", "ph": "M", "pid": 1, "tid": CALL, "args": {"name": "call"}}
    yield _slice(function, "call", CALL, 0.0, seconds, {})
    inside = [step for step in steps if step.start is None]
    for step in steps:
        if step.start is not None:
            yield _slice(step.words or step.name, step.part, CALL, step.start, step.seconds, _details(step))
    if inside:
        yield {"name": "thread_name", "ph": "M", "pid": 1, "tid": INSIDE, "args": {"name": "in loops and branches, all runs"}}
        at = 0.0
        for step in inside:
            yield _slice(step.words or step.name, step.part, INSIDE, at, step.seconds, _details(step))
            at += step.seconds
        yield _slice("loops and branches", "control", INSIDE, at, control_seconds, {})


def _slice(name: str, kind: str, track: int, start: float, seconds: float, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": start * 1e6, "dur": seconds * 1e6}
    return {"name": name, "cat": kind, "ph": "X", "pid": 1, "tid": track, **times, "args": args}


def _details(step: ProfiledStep) -> dict[str, Any]:
    details: dict[str, Any] = {"step": step.name, "lines": places(step.lines), "ops": list(step.ops), "runs": step.runs}
    if step.cost is not None:
        cost = step.cost
        details |= {"flops": cost.flops, "functions": cost.functions, "bytes": cost.bytes}
        details |= {"of limit": step.share, "limit": step.limit}
    return details
