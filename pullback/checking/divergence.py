"""Locate where a compiled function first differs from its plain NumPy run: a source line and variable of the user's, or an
instruction.

A trace and a plain run execute the same lines. After each line both have the same variables; the traced ones are IR values,
which the interpreter computes. If all of them agree, the compiled code is compared with the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np

from pullback.checking.interpreted_run import Array, run_call, run_stepwise
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Loc
from pullback.ir.core.value import Value
from pullback.programs.call import Call
from pullback.programs.compile_record import Recorder
from pullback.programs.entry import Entry
from pullback.programs.pipeline import program
from pullback.programs.report import location
from pullback.tracer import TracedArray, TraceError
from pullback.tracer.arrays.tree import LEAF, TreeDef
from pullback.tracer.transforms.branches import is_running
from pullback.tracer.user_code.ownership import is_users
from pullback.tracer.user_code.source import line_text

RETURNED = "the result"
"""Name under which a returned value is compared."""
NO_FILE = "<string>"
"""File name of generated methods, such as those of dataclasses."""
MOST_ELEMENTS = 1_000_000
"""Largest array, in elements, that is copied after each line; larger ones are not compared."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Two values that should be equal.

    ``what``: the result, variable or op that differs. ``file``, ``line`` and ``source`` are the user's; empty if unknown.
    ``found`` comes from the compiled function, ``expected`` from NumPy.
    """

    what: str
    file: str
    line: int
    source: str
    found: str
    expected: str

    def __str__(self) -> str:
        at = location(Loc(self.file, self.line))
        text = f"{self.what}{f' at {at}' if at else ''}: found {self.found}, expected {self.expected}"
        return f"{text}\n    {self.source}" if self.source else text


def difference_texts(actual: Any, expected: Any) -> tuple[str, str] | None:
    """Return the texts of two values that differ by more than rounding; None if they do not."""
    a, b = np.asarray(actual), np.asarray(expected)
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
    """Return the tolerance between two evaluations of one formula, as a fraction of the largest element."""
    exponent = 2.0 ** -np.finfo(dtype).nmant if np.dtype(dtype).kind in "fc" else 2.0**-7
    return min(2e4 * exponent, 0.05)


def diverging_line(call: Call, plain: Callable[[], Any]) -> Difference | None:
    """Return the first variable or instruction of a call that differs; None if none was detected.

    ``plain()`` performs the call in NumPy; the call is traced again and ``plain`` is run again.
    """
    expected: list[_Step] = []
    traced: list[_Step] = []
    with _LineRecorder(expected, _plain_value):
        plain()
    try:
        with _LineRecorder(traced, _traced_value):
            trace = call.retrace(as_written=True)
    except TraceError:
        return diverging_instruction(call)
    arguments = trace.arguments(call.leaves)
    difference = None if arguments is None else _first_step(traced, expected, run_stepwise(trace.function, arguments))
    return difference or diverging_instruction(call)


def diverging_instruction(call: Call) -> Difference | None:
    """Return the first instruction of a call whose compiled result differs from the interpreter's."""
    run = run_call(call)
    values = [v for i in run.function.instructions for v in i.results]
    block = Block(run.function.parameters, run.function.instructions, tuple(values))
    nothing: tuple[int | None, ...] = (None,) * len(values)
    all_values = replace(
        call.trace, function=replace(run.function, body=block), out_tree=TreeDef("tuple", tuple, children=[LEAF] * len(values)),
        weak=("",) * len(values), returned=nothing, stores=None, writes=(), outside_writes=(),
    )  # fmt: skip
    entry = Entry(all_values, program(all_values, call.leaves, call.device), call.leaves, Recorder().record(call.arguments))
    for value, actual in zip(values, entry(call.leaves), strict=True):
        differ = difference_texts(actual, run.values[value])
        if differ is not None:
            loc = run.producer[value].loc
            subject = f"{loc.note}, {run.producer[value].op.name}" if loc.note else run.producer[value].op.name
            return _difference(f"{subject} as compiled", loc.file, loc.line, differ)
    return None


@dataclass(frozen=True)
class _Step:
    """The variables of a frame after one of its lines."""

    file: str
    line: int
    values: dict[str, Any]


class _LineRecorder:
    """Records the lines of the user's code that run in this thread, with their variables as copied by ``snapshot``.

    Lines in branches and loops are left out: their execution counts differ under tracing.
    """

    def __init__(self, steps: list[_Step], snapshot: Callable[[Any], Any]) -> None:
        self.steps = steps
        self.snapshot = snapshot
        self.lines: dict[FrameType, int] = {}
        self.previous: Any = None

    def __enter__(self) -> None:
        self.previous = sys.gettrace()
        sys.settrace(self.enter)

    def __exit__(self, *error: object) -> None:
        sys.settrace(self.previous)

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if is_running():
            return None
        return self.line if is_users(frame.f_code) and frame.f_code.co_filename != NO_FILE else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event in ("line", "return") and frame in self.lines:
            variables = {RETURNED: arg} if event == "return" else dict(frame.f_locals)
            values = {name: shot for name, value in variables.items() if (shot := self.snapshot(value)) is not None}
            self.steps.append(_Step(frame.f_code.co_filename, self.lines[frame], values))
        self.lines[frame] = frame.f_lineno
        return self.line


def _plain_value(value: Any) -> Any:
    """Return a copy of a number or of a small array; None for anything else."""
    is_small = isinstance(value, np.ndarray) and value.size <= MOST_ELEMENTS and not value.dtype.hasobject
    return np.array(value) if is_small or isinstance(value, np.generic | bool | int | float) else None


def _traced_value(value: Any) -> Any:
    """Return the IR value of a traced array, or the plain value."""
    if not isinstance(value, TracedArray):
        return _plain_value(value)
    if value.literal is not None:
        return np.asarray(value.literal, value.dtype)
    return value.value


def _first_step(traced: Sequence[_Step], expected: Sequence[_Step], values: Mapping[Value, Array]) -> Difference | None:
    """Return the first variable that differs after a line, or the line after which the two runs diverge; None if there is
    none."""
    last: _Step | None = None
    for left, right in zip(traced, expected, strict=False):
        if (left.file, left.line) != (right.file, right.line):
            at = last or left
            return _difference("the next line", at.file, at.line, (str(left.line), str(right.line)))
        last = left
        for name, shot in left.values.items():
            actual = values.get(shot) if isinstance(shot, Value) else shot
            if actual is None or name not in right.values:
                continue
            differ = difference_texts(actual, right.values[name])
            if differ is not None:
                return _difference(name, left.file, left.line, differ)
    return None


def _difference(subject: str, file: str, line: int, differ: tuple[str, str]) -> Difference:
    source = line_text(file, line).strip() if file else ""
    return Difference(what=subject, file=file, line=line, source=source, found=differ[0], expected=differ[1])
