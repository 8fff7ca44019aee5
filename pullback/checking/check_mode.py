"""Implement ``pb.jit(check=True)``: trace each call again and compare the trace with that of the program about to serve the
call."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, ParamSpec, TypeVar

from pullback.compiled.function import Jitted
from pullback.ir.core.structure import NOWHERE, Function, Loc, walk
from pullback.ir.text import canonical
from pullback.programs.entry import Entry
from pullback.tracer import Captured, Constant, Signature, Trace, TraceError, current
from pullback.tracer.names.call_objects import serving
from pullback.tracer.user_code.tracebacks import keep_users_frames, with_users_frames

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Checked(Jitted[P, R]):
    """A transformed function that raises if its program no longer does what the Python function would do now.

    A program serves a call if its guards hold. A change that no guard covers (state deep inside a library, a file) appears as
    a difference between the program's trace and a new trace of this call. Cost: one trace per call.
    """

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is None:
            try:
                self._compare(*args, **kwargs)
            except Exception as error:
                keep_users_frames(error)
                raise
        return super().__call__(*args, **kwargs)

    @with_users_frames
    def into(self, out: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Check the call, then run it as ``Jitted.into`` does."""
        if current() is None:
            self._compare(*args, **kwargs)
        return super().into(out, *args, **kwargs)

    def _path(self, call: Signature, entry: Entry) -> str:
        return "Python, since check=True compares each call with a new trace"

    def _compare(self, *args: P.args, **kwargs: P.kwargs) -> None:
        """Raise TraceError if the trace of this call differs from that of the program that would serve it."""
        call = self.examine(args, kwargs)
        with serving(call.signature.objects):
            served = next((e.trace for e in call.variants if e.holds(call.leaves)), None)
        if served is None:
            return
        change = difference(served, self._trace(call.signature, args, kwargs, frozenset(_outside(served))))
        if change is not None:
            description, loc = change
            raise TraceError(
                f"check: {call.title} does something else now than when it was compiled: {description}; "
                "what changed is outside and not guarded: pass it as an argument",
                loc,
            )


def difference(before: Trace, after: Trace) -> tuple[str, Loc] | None:
    """Return the first difference between two traces of one signature and its source location; None if there is none."""
    was, now = _outside(before), _outside(after)
    if was != now:
        loc = _first_read(after, set(now) - set(was)) or _first_read(before, set(was) - set(now))
        return f"it read {', '.join(was) or 'nothing'} from outside, and reads {', '.join(now) or 'nothing'}", loc
    change = _instructions(before.function, after.function)
    if change is not None:
        return change
    loc = next((i.loc for i in reversed(after.function.instructions) if i.loc), NOWHERE)
    if _digests(before) != _digests(after):
        return "an array that was made without traced values has other contents", loc
    if before.result_tree != after.result_tree:
        return f"it returned {before.result_tree}, and returns {after.result_tree}", loc
    if _results(before) != _results(after):
        return "its results have other types, or are other arguments", loc
    if canonical(before.function) != canonical(after.function):
        return "it returns other values", loc
    return None


def _results(trace: Trace) -> Any:
    return trace.weak, trace.returned, trace.writes, trace.changes, [write.describe for write in trace.outside_writes]


def _instructions(before: Function, after: Function) -> tuple[str, Loc] | None:
    pairs = zip_longest(walk(before.body), walk(after.body))
    lines = zip_longest(_lines(before), _lines(after))
    for ordinal, ((old, new), (was, now)) in enumerate(zip(pairs, lines, strict=True), 1):
        if was != now:
            instruction = new or old
            assert instruction is not None
            return f"instruction {ordinal} was {_quoted(was)}, and is {_quoted(now)}", instruction.loc
    return None


def _lines(function: Function) -> list[str]:
    """Return the canonical line of each instruction, in order."""
    lines = (line.strip() for line in canonical(function).splitlines()[1:])
    return [line for line in lines if not line.startswith(("return", "yield", "}"))]


def _quoted(line: str | None) -> str:
    return "none" if line is None else f'"{line}"'


def _outside(trace: Trace) -> list[str]:
    """Return the descriptions of the values that a trace captured from outside."""
    return [source.describe for source in trace.inputs if isinstance(source, Captured)]


def _first_read(trace: Trace, names: set[str]) -> Loc:
    """Return the location of the first instruction that reads one of the captured values with these names."""
    pairs = zip(trace.function.parameters, trace.inputs, strict=True)
    values = {v for v, source in pairs if isinstance(source, Captured) and source.describe in names}
    return next((i.loc for i in trace.function.instructions if not values.isdisjoint(i.operands)), NOWHERE)


def _digests(trace: Trace) -> list[bytes]:
    return [source.digest for source in trace.inputs if isinstance(source, Constant)]
