"""Implement ``pb.jit(debug=True)``: interpret each call step by step before the compiled code runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from pullback.checking.check_mode import Checked
from pullback.compiled.function import Jitted
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.structure import walk
from pullback.ir.ops.control.regions import Transform
from pullback.programs.call import Call
from pullback.programs.entry import Entry
from pullback.tracer import Signature, current
from pullback.tracer.names.call_objects import serving
from pullback.tracer.user_code.tracebacks import keep_users_frames, traceback_at

if TYPE_CHECKING:
    from pullback.checking import debug_steps as steps
    from pullback.checking.nonfinite_origins import NonFinite
else:
    steps = later("pullback.checking.debug_steps")

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Debugged(Jitted[P, R]):
    """A transformed function that raises at the first step that produces a NaN, an infinity or a number out of range.

    Further transforms of it are debugged too. Each call runs on the interpreter first, then compiled.
    """

    is_inherited = True

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is None:
            try:
                self._interpret(*args, **kwargs)
            except Exception as error:
                keep_users_frames(error)
                raise
        return super().__call__(*args, **kwargs)

    def _path(self, call: Signature, entry: Entry) -> str:
        return "Python, since debug=True looks at each step first"

    def _interpret(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise FloatingPointError for the first wrong step of a call."""
        call = self.examine(args, kwargs)
        with serving(call.signature.objects):
            served = next((e.trace for e in call.variants if e.holds(call.leaves)), None)
        if served is not None:
            trace = served
            call = replace(call, retrace=lambda as_written=False: trace)
        wrong = steps.first_wrong(call)
        if wrong is not None:
            raise _error(call, wrong)


class DebuggedAndChecked(Debugged[P, R], Checked[P, R]):
    """A transformed function with both ``debug=True`` and ``check=True``."""


def _error(call: Call, wrong: NonFinite) -> FloatingPointError:
    """Build the FloatingPointError for a wrong step, with the user's source line in its traceback."""
    headline, *details = wrong.lines()
    phase = ""
    if any(isinstance(i.op, Transform) for i in walk(call.trace.function.body)):
        phase = ", in the backward part" if wrong.note.startswith("pullback") else ", in the forward part"
    hint = f"  nothing was run; pb.find_nan({call.title}) with the same arguments follows what led there and what came of it"
    lines = [f"debug: {call.title}: {headline}{phase}", *details, hint]
    error = FloatingPointError("\n".join(lines))
    if wrong.file:
        error.__traceback__ = traceback_at(wrong.file, wrong.line)
    return error
