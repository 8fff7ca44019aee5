"""A compiled signature: guards checked, captured values read anew, the program run, NumPy results built."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.inspection import Record
from pullback.ir import Instruction, Value
from pullback.ir.interpret import interpret
from pullback.ir.ops.control import CheckFailed
from pullback.ir.passes.grad import grad as expand_gradients
from pullback.pipeline import Program
from pullback.tracer import Trace
from pullback.tracer.functions.indexing import range_message
from pullback.tracer.source import line_text, shown
from pullback.tracer.tracebacks import traceback_at
from pullback.tracer.tree import filler
from pullback.tracer.watch import native

MISS = object()


class Entry:
    """A compiled signature: called with the leaves of a call, it returns the result, or MISS where its trace does not hold.

    ``record`` says how it was made.
    """

    __slots__ = ("_are_plain", "_constants", "_fill", "_is_direct", "_program", "_read", "_trace", "record")

    def __init__(self, trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> None:
        self.record = record
        self._trace = trace
        self._program = program
        self._are_plain = all(map(_is_plain, leaves))
        self._read = trace.watch.read if trace.guards or len(trace.inputs) > len(leaves) else None
        self._constants = list(program.constants)
        self._fill = filler(trace.result_tree)
        is_fresh = program.template is None or not program.template.given
        self._is_direct = is_fresh and all(o.source == "result" for o in program.outcomes)

    @property
    def trace(self) -> Trace:
        """The trace that the program was made from."""
        return self._trace

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self._program

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Whether a call with these leaves, of the entry's signature, would be served."""
        return self._trace.holds() and self._trace.outside() is not None

    def __call__(self, leaves: list[Any]) -> Any:
        arguments = leaves if self._are_plain else list(map(native, leaves))
        if self._read is not None:
            outside = self._read()
            if outside is None:
                return MISS
            arguments = arguments + outside
        program = self._program
        results: Sequence[Any] = ()
        if program.template is not None and program.instance is not None:
            try:
                results = program.template.executable.call(program.instance, arguments + self._constants)
            except CheckFailed as failed:
                raise failure(self._trace, failed, arguments) from None
        if self._is_direct:
            return self._fill([r if r.ndim else r[()] for r in results])
        return self._fill(self._outcomes(results, leaves, arguments))

    def changed(self) -> list[str]:
        """The numbers from outside, and the containers of them, that are no longer what the trace found."""
        guards = [g for g in self._trace.guards if g.how == "plain" or (g.how == "value" and type(g.expected) in (int, float))]
        return [guard.describe for guard in guards if not guard.holds()]

    def unstable(self) -> list[str]:
        """What the trace depends on that is another object at each read."""
        return [guard.describe for guard in self._trace.guards if not guard.is_stable()]

    def _outcomes(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The leaves of the result where some are arguments returned whole, or the same value twice."""
        found: list[Any] = []
        for outcome, value in zip(self._program.outcomes, self._trace.function.results, strict=True):
            match outcome.source:
                case "result":
                    made = results[outcome.index]
                    template = self._program.template
                    if template is not None and outcome.index in template.given:
                        made = np.array(made, value.type.dtype.numpy, order="C")
                case "repeat":
                    made = np.array(results[outcome.index], value.type.dtype.numpy, order="C")
                case "leaf":
                    given = leaves[outcome.index]
                    found.append(given if isinstance(given, np.ndarray | np.generic) else value.type.dtype.numpy.type(given))
                    continue
                case _:
                    made = np.array(arguments[outcome.index], value.type.dtype.numpy, order="C")
            found.append(made if made.ndim else made[()])
        return found


def failure(trace: Trace, failed: CheckFailed, arguments: Sequence[Any]) -> Exception:
    """The exception that a failed check of a trace's program names, with the user's line in a note."""
    function = expand_gradients(trace.function)
    typed = [np.asarray(a, p.type.dtype.numpy) for a, p in zip(arguments, function.parameters, strict=True)]
    ran: dict[Value, tuple[Instruction, Sequence[Any], Any]] = {}

    def observe(instruction: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> None:
        ran.update({v: (instruction, operands, r) for v, r in zip(instruction.results, results, strict=True)})

    message, file, line = str(failed), "", 0
    try:
        interpret(function, *typed, effects=False, observe=observe)
    except CheckFailed as again:
        file, line = again.loc.file, again.loc.line
        if again.condition is not None and str(again) == message:
            message = range_message(message, again.condition, ran)
    kind = getattr(builtins, failed.error, None) or getattr(np.linalg, failed.error)
    error: Exception = kind(message)
    if file:
        error.__traceback__ = traceback_at(file, line)
        error.add_note(f"  at {shown(file)}:{line}, in compiled code: {line_text(file, line)}".rstrip(": "))
    return error


def _is_plain(leaf: Any) -> bool:
    """Whether a leaf can be a program's argument as it is."""
    return not isinstance(leaf, np.ndarray) or (leaf.ndim > 0 and leaf.dtype.isnative)
