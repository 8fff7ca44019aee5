"""``pb.jit(debug=True)``: each call is checked step by step before it is made."""

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
from pullback.tracer.user_code.tracebacks import keep_users_frames, traceback_at

if TYPE_CHECKING:
    from pullback.checking import debug_steps as steps
    from pullback.checking.nonfinite_origins import NonFinite
else:
    steps = later("pullback.checking.debug_steps")

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Debugged(Jitted[P, R]):
    """A transformed function that fails at the first step that makes a NaN, an infinity or a number out of range.

    What is made of it by a further transform is one too. A call runs on the interpreter first, then compiled.
    """

    is_inherited = True

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is None:
            try:
                self._look(*args, **kwargs)
            except Exception as error:
                keep_users_frames(error)
                raise
        return super().__call__(*args, **kwargs)

    def _path(self, call: Signature, entry: Entry) -> str:
        return "Python, since debug=True looks at each step first"

    def _look(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raises FloatingPointError for the first wrong step of a call."""
        call = self.examine(args, kwargs)
        served = next((e.trace for e in call.variants if e.holds(call.leaves)), None)
        if served is not None:
            trace = served
            call = replace(call, retrace=lambda: trace)
        found = steps.first_wrong(call)
        if found is not None:
            raise _error(call, found)


class DebuggedAndChecked(Debugged[P, R], Checked[P, R]):
    """Both."""


def _error(call: Call, found: NonFinite) -> FloatingPointError:
    first, *rest = found.lines()
    part = ""
    if any(isinstance(i.op, Transform) for i in walk(call.trace.function.body)):
        part = ", in the backward part" if found.note.startswith("pullback") else ", in the forward part"
    further = f"  nothing was run; pb.find_nan({call.title}) with the same arguments follows what led there and what came of it"
    lines = [f"debug: {call.title}: {first}{part}", *rest, further]
    error = FloatingPointError("\n".join(lines))
    if found.file:
        error.__traceback__ = traceback_at(found.file, found.line)
    return error
