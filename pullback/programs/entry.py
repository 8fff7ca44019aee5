"""A compiled signature: guards checked, captured values read anew, the program run, NumPy results built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir import Function
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.hoist_guards import BEYOND, GUARD, guards_first
from pullback.programs.compile_record import Record
from pullback.programs.donation import apart
from pullback.programs.out import Out, check_device, chosen_results, chosen_there, put
from pullback.programs.pipeline import Program, split_outcomes
from pullback.runtime.fastcall.abi import is_known
from pullback.tracer import Trace
from pullback.tracer.arrays.python_ints import is_short
from pullback.tracer.arrays.tree import filler
from pullback.tracer.failures import failure
from pullback.tracer.names.guard_code import native

if TYPE_CHECKING:
    from pullback.ir.passes import inline_custom as uncustom
    from pullback.ir.passes import pipeline as passes
    from pullback.ir.passes.transforms import expand as grad
else:
    grad, uncustom = later("pullback.ir.passes.transforms.expand"), later("pullback.ir.passes.inline_custom")
    passes = later("pullback.ir.passes.pipeline")

MISS = object()
MOST_TRIES = 4
"""Objects of several kinds may be the same to a program, each with native calls of its own."""


class GuardFailed(Exception):
    """The program is not one for its arguments: guard ``number`` of its trace does not hold."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Unserved(Exception):
    """The program is not one for its arguments: an int that it computes of them has more than 64 bits."""


class Entry:
    """A compiled signature: called with the leaves of a call, it returns the result, or MISS where its trace does not hold.

    ``record`` says how it was made, ``tries`` how many more of its calls in Python are looked at for whether the next ones may be
    native, and ``tries_into`` those with arrays for the result; ``outside_count``: how many of its inputs, the last, come from
    outside.
    """

    __slots__ = (
        "_are_plain", "_constants", "_fill", "_is_direct", "_lent", "_program", "_read", "_short", "_trace", "outside_count",
        "record", "tries", "tries_into",
    )  # fmt: skip

    def __init__(self, trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> None:
        self.record = record
        is_native = program.template is None or program.template.is_native
        self.tries = self.tries_into = MOST_TRIES if is_known() and is_native else 0
        self.outside_count = len(trace.inputs) - len(leaves)
        self._trace = trace
        self._short = trace.short
        self._program = program
        self._are_plain = all(map(_is_plain, leaves))
        self._read = trace.watch.read if trace.guards or len(trace.inputs) > len(leaves) else None
        self._constants = list(program.constants)
        self._fill = filler(trace.result_tree)
        is_fresh = program.template is None or not program.template.given
        self._is_direct = is_fresh and all(o.source == "result" for o in program.outcomes)
        self._lent = () if program.template is None else tuple(program.template.home.values())

    @property
    def trace(self) -> Trace:
        """The trace that the program was made from."""
        return self._trace

    @property
    def last(self) -> Entry:
        """The entry that served the last call: this one."""
        return self

    @property
    def program(self) -> Program:
        """The program that runs."""
        return self._program

    def holds(self, leaves: Sequence[Any]) -> bool:
        """Whether a call with these leaves, of the entry's signature, would be served."""
        if not self._trace.holds() or not all(is_short(leaves[k]) for k in self._short):
            return False
        outside = self._trace.outside()
        return outside is not None and self._follows([*map(native, leaves), *outside])

    def _follows(self, arguments: Sequence[Any]) -> bool:
        """Whether the guards on values hold."""
        if not self._trace.branches:
            return True
        function = _expanded(self._trace.function)
        try:
            interpret(function, *_typed(function, arguments), effects=False)
        except CheckFailed as failed:
            return failed.error not in (GUARD, BEYOND)
        return True

    def __call__(self, leaves: list[Any]) -> Any:
        arguments = self._arguments(leaves)
        if arguments is None:
            return MISS
        try:
            results = self._run(arguments)
        except _Unserved:
            return MISS
        return self._filled(results, leaves, arguments)

    def _arguments(self, leaves: list[Any]) -> list[Any] | None:
        """What the program is given, but for constants; None if a guard does not hold."""
        if self._short and not all(is_short(leaves[k]) for k in self._short):
            return None
        arguments = leaves if self._are_plain else list(map(native, leaves))
        if self._read is None:
            return arguments
        outside = self._read()
        return None if outside is None else arguments + outside

    def _run(self, arguments: list[Any], out: Out | None = None) -> Sequence[Any]:
        """What the program gives, in arrays of ``out`` where it can."""
        program = self._program
        if program.template is None or program.instance is None:
            return ()
        executable = program.template.executable
        chosen: Sequence[Any] | None = None
        if out is not None and program.template.is_native:
            chosen = chosen_results(out, executable.plan, program.outcomes, arguments)
        elif out is not None:
            chosen = chosen_there(out, program.outcomes, len(executable.program.results), arguments)
        try:
            return executable.call(program.instance, arguments + self._constants, chosen)
        except CheckFailed as failed:
            if failed.error == GUARD:
                raise GuardFailed(int(str(failed))) from None
            if failed.error == BEYOND:
                raise _Unserved from None
            raise failure(self._trace.function, failed, arguments) from None

    def finish(self, results: list[Any], leaves: Sequence[Any], outside: Sequence[Any]) -> Any:
        """The result of a call whose program has run natively and gave these results."""
        arguments = [*map(native, leaves), *outside]
        template, instance = self._program.template, self._program.instance
        if template is not None and instance is not None and not template.executable.plan.gives_all:
            results = [given.out_of(arguments + self._constants, results) for given in instance.gives]
        return self._filled(results, leaves, arguments)

    def fail(self, status: int, leaves: Sequence[Any], outside: Sequence[Any]) -> None:
        """Raises what a program that ran natively ended with; nothing if it is not one for its arguments."""
        template = self._program.template
        assert template is not None
        error = template.executable.failure(status)
        if not isinstance(error, CheckFailed):
            raise error
        if error.error not in (GUARD, BEYOND):
            raise failure(self._trace.function, error, [*map(native, leaves), *outside]) from None

    def serve(self, leaves: list[Any], out: Out | None = None) -> Any:
        """As a call, for entries whose results may be in arrays of the caller: in arguments whose memory the program takes, and
        in those of ``out``, one for each leaf of the result or None."""
        arguments = self._arguments(leaves)
        if arguments is None:
            return MISS
        if out is not None and self._program.template is not None:
            check_device(out, self._program.template.device)
        if self._lent:
            arguments = apart(arguments, self._lent)
        try:
            results = self._run(arguments, out)
        except _Unserved:
            return MISS
        return self._given(results, leaves, arguments, out)

    def interpreted(self, leaves: list[Any], out: Out | None = None) -> Any:
        """The result of the call that was traced, from the interpreter: the trace followed what that found."""
        outside = self._trace.outside()
        if outside is None:
            return MISS
        arguments = [*map(native, leaves), *outside]
        function = _expanded(split_outcomes(self._trace)[0])
        return self._given(interpret(function, *_typed(function, arguments)), leaves, arguments, out)

    def _given(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any], out: Out | None) -> Any:
        if out is None:
            return self._filled(results, leaves, arguments)
        return self._fill(put(out, self._outcomes(results, leaves, arguments)))

    def _filled(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any]) -> Any:
        if self._is_direct:
            return self._fill([r if isinstance(r, Remote) or r.ndim else r[()] for r in results])
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
                        made = _fresh(made, value)
                case "repeat":
                    made = _fresh(results[outcome.index], value)
                case "leaf":
                    given = leaves[outcome.index]
                    is_array = isinstance(given, np.ndarray | np.generic | Remote)
                    found.append(given if is_array else value.type.dtype.numpy.type(given))
                    continue
                case _:
                    made = _fresh(arguments[outcome.index], value)
            found.append(made if made.ndim or isinstance(made, Remote) else made[()])
        return found


def _fresh(array: Any, value: Value) -> Any:
    """An array of its own for a result; on a device no array changes, and one is as good as another."""
    return array if isinstance(array, Remote) else np.array(array, value.type.dtype.numpy, order="C")


def _expanded(function: Function) -> Function:
    return guards_first(uncustom.uncustom(grad.grad(passes.run(function, passes.BEFORE_GRAD))))


def _typed(function: Function, arguments: Sequence[Any]) -> list[Any]:
    return [np.asarray(a, p.type.dtype.numpy) for a, p in zip(arguments, function.parameters, strict=True)]


def _is_plain(leaf: Any) -> bool:
    """Whether a leaf can be a program's argument as it is."""
    return not isinstance(leaf, np.ndarray) or (leaf.ndim > 0 and leaf.dtype.isnative)
