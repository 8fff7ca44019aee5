"""Where a compiled function first differs from its plain NumPy run: by the user's line and variable, or by instruction.

A trace and a plain run go through the same lines. After each line both have the same variables; the traced ones are values of
the trace, which the interpreter computes. Where all of them agree, the compiled code is compared with the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np

from pullback.checking.interpreted_run import Array, run_call, run_stepwise
from pullback.ir.core.structure import Block, Loc
from pullback.ir.core.value import Value
from pullback.programs.call import Call
from pullback.programs.compile_record import Recorder
from pullback.programs.entry import Entry
from pullback.programs.pipeline import program
from pullback.programs.report import place
from pullback.tracer import TracedArray
from pullback.tracer.arrays.tree import LEAF, TreeDef
from pullback.tracer.transforms.branches import is_running
from pullback.tracer.user_code.ownership import is_users
from pullback.tracer.user_code.source import line_text

RETURNED = "the result"
NO_FILE = "<string>"
"""The file name of methods that dataclasses and the like are given."""
MOST_ELEMENTS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two values that should be one. ``what``: a result, a variable, or an op; ``file``, ``line`` and ``source`` are the user's,
    empty where unknown. ``found`` is the compiled function's, ``expected`` NumPy's."""

    what: str
    file: str
    line: int
    source: str
    found: str
    expected: str

    def __str__(self) -> str:
        at = place(Loc(self.file, self.line))
        text = f"{self.what}{f' at {at}' if at else ''}: found {self.found}, expected {self.expected}"
        return f"{text}\n    {self.source}" if self.source else text


def unlike(found: Any, expected: Any) -> tuple[str, str] | None:
    """What two values are where they differ by more than rounding; None if they do not."""
    a, b = np.asarray(found), np.asarray(expected)
    if a.shape != b.shape or a.dtype != b.dtype:
        return f"{a.dtype} of shape {a.shape}", f"{b.dtype} of shape {b.shape}"
    if a.dtype.kind in "biu":
        differ = a != b
    else:
        with np.errstate(all="ignore"):
            scale = np.max(np.abs(b), where=np.isfinite(b), initial=0.0)
            close = np.abs(a - b) <= rounding(b.dtype) * scale
            differ = ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not differ.any():
        return None
    index = tuple(int(k) for k in np.argwhere(differ)[0])
    at = f" at {list(index)}" if index else ""
    return f"{a[index]!s}{at}", f"{b[index]!s}{at}"


def rounding(dtype: Any) -> float:
    """By how much of the largest element results of one formula may differ."""
    exponent = 2.0 ** -np.finfo(dtype).nmant if np.dtype(dtype).kind in "fc" else 2.0**-7
    return min(2e4 * exponent, 0.05)


def diverging_line(call: Call, plain: Callable[[], Any]) -> Difference | None:
    """The first variable, or instruction, of a call that differs; None if none was seen to. ``plain()`` is the call in NumPy;
    both are run again."""
    expected: list[_Step] = []
    traced: list[_Step] = []
    with _Lines(expected, _plain_value):
        plain()
    with _Lines(traced, _traced_value):
        trace = call.retrace()
    arguments = trace.arguments(call.leaves)
    found = None if arguments is None else _first_step(traced, expected, run_stepwise(trace.function, arguments))
    return found or diverging_instruction(call)


def diverging_instruction(call: Call) -> Difference | None:
    """The first instruction of a call whose result differs between compiled code and the interpreter."""
    run = run_call(call)
    made = [v for i in run.function.instructions for v in i.results]
    block = Block(run.function.parameters, run.function.instructions, tuple(made))
    nothing: tuple[int | None, ...] = (None,) * len(made)
    every = replace(
        call.trace, function=replace(run.function, body=block), out_tree=TreeDef("tuple", tuple, children=[LEAF] * len(made)),
        weak=("",) * len(made), returned=nothing, writes=(), outside_writes=(),
    )  # fmt: skip
    entry = Entry(every, program(every, call.leaves, call.device), call.leaves, Recorder().record(call.arguments))
    for value, found in zip(made, entry(call.leaves), strict=True):
        differ = unlike(found, run.values[value])
        if differ is not None:
            loc = run.maker[value].loc
            what = f"{loc.note}, {run.maker[value].op.name}" if loc.note else run.maker[value].op.name
            return _difference(f"{what} as compiled", loc.file, loc.line, differ)
    return None


@dataclass(frozen=True)
class _Step:
    """The variables of a frame after one of its lines."""

    file: str
    line: int
    values: dict[str, Any]


class _Lines:
    """Records the user's lines that run in this thread, with their variables by ``snapshot``; not those of branches and loops,
    which run another number of times when they are traced."""

    def __init__(self, steps: list[_Step], snapshot: Callable[[Any], Any]) -> None:
        self.steps = steps
        self.snapshot = snapshot
        self.lines: dict[FrameType, int] = {}
        self.before: Any = None

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self.enter)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self.before)

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if is_running():
            return None
        return self.line if is_users(frame.f_code) and frame.f_code.co_filename != NO_FILE else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event in ("line", "return") and frame in self.lines:
            found = {RETURNED: arg} if event == "return" else dict(frame.f_locals)
            values = {name: shot for name, value in found.items() if (shot := self.snapshot(value)) is not None}
            self.steps.append(_Step(frame.f_code.co_filename, self.lines[frame], values))
        self.lines[frame] = frame.f_lineno
        return self.line


def _plain_value(value: Any) -> Any:
    is_small = isinstance(value, np.ndarray) and value.size <= MOST_ELEMENTS and not value.dtype.hasobject
    return np.array(value) if is_small or isinstance(value, np.generic | bool | int | float) else None


def _traced_value(value: Any) -> Any:
    if not isinstance(value, TracedArray):
        return _plain_value(value)
    if value.literal is not None:
        return np.asarray(value.literal, value.dtype)
    return value.value


def _first_step(traced: Sequence[_Step], expected: Sequence[_Step], values: Mapping[Value, Array]) -> Difference | None:
    """The first of the lines after which a variable differs, or after which the two runs go different ways."""
    last: _Step | None = None
    for left, right in zip(traced, expected, strict=False):
        if (left.file, left.line) != (right.file, right.line):
            at = last or left
            return _difference("the next line", at.file, at.line, (str(left.line), str(right.line)))
        last = left
        for name, shot in left.values.items():
            found = values.get(shot) if isinstance(shot, Value) else shot
            if found is None or name not in right.values:
                continue
            differ = unlike(found, right.values[name])
            if differ is not None:
                return _difference(name, left.file, left.line, differ)
    return None


def _difference(what: str, file: str, line: int, differ: tuple[str, str]) -> Difference:
    source = line_text(file, line).strip() if file else ""
    return Difference(what=what, file=file, line=line, source=source, found=differ[0], expected=differ[1])
