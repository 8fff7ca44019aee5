"""A compiled signature: checks guards, reads captured values, runs the program and builds NumPy results."""

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
from pullback.ir.passes.hoist_guards import BEYOND, GUARD, guards_first, without_guards
from pullback.programs.compile_record import Record
from pullback.programs.donation import with_separate_memory
from pullback.programs.out import Out, check_device, chosen_on_device, chosen_results, write_results
from pullback.programs.pipeline import Program, split_outcomes
from pullback.runtime.fastcall.abi import is_supported
from pullback.tracer import Trace
from pullback.tracer.arrays.literals import scalar_of
from pullback.tracer.arrays.python_ints import is_short
from pullback.tracer.arrays.tree import generate_unflatten
from pullback.tracer.failures import raise_failure
from pullback.tracer.names.guard_code import native

if TYPE_CHECKING:
    from pullback.ir.passes import inline_custom
    from pullback.ir.passes import pipeline as passes
    from pullback.ir.passes.transforms import expand as grad
else:
    grad, inline_custom = later("pullback.ir.passes.transforms.expand"), later("pullback.ir.passes.inline_custom")
    passes = later("pullback.ir.passes.pipeline")

MISS = object()
MOST_TRIES = 4
"""Number of Python calls for which a native call is attempted: kinds of objects that a program treats alike need separate
native calls."""


class GuardFailed(Exception):
    """The program does not serve its arguments: guard ``index`` of its trace does not hold."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class _Unserved(Exception):
    """The program does not serve its arguments: an int computed from them has more than 64 bits."""


class Entry:
    """A compiled signature: called with the leaves of a call, it returns the result, or MISS if its trace does not hold.

    ``record``: how it was compiled; ``tries``: the number of further Python calls after which a native call is attempted, and
    ``tries_into`` the same with arrays for the result; ``outside_count``: the number of its inputs, the last ones, that come
    from outside.
    """

    __slots__ = (
        "_are_plain",
        "_constants",
        "_fill",
        "_is_direct",
        "_kinds",
        "_program",
        "_read",
        "_reused",
        "_short",
        "_trace",
        "outside_count",
        "record",
        "tries",
        "tries_into",
    )  # fmt: skip

    def __init__(self, trace: Trace, program: Program, leaves: Sequence[Any], record: Record) -> None:
        self.record = record
        is_native = program.template is None or program.template.is_native
        self.tries = self.tries_into = MOST_TRIES if is_supported() and is_native else 0
        self.outside_count = len(trace.inputs) - len(leaves)
        self._trace = trace
        self._short = trace.short
        self._program = program
        self._are_plain = all(map(_is_plain, leaves))
        self._read = trace.watch.read if trace.guards or len(trace.inputs) > len(leaves) else None
        self._constants = list(program.constants)
        self._fill = generate_unflatten(trace.result_tree)
        is_fresh = program.template is None or not program.template.passed_through
        self._is_direct = is_fresh and all(o.source == "result" for o in program.outcomes)
        self._kinds = tuple(o.kind for o in program.outcomes)
        self._reused = () if program.template is None else tuple(program.template.home.values())

    @property
    def trace(self) -> Trace:
        """The trace from which the program was compiled."""
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
        """Return whether a call with these leaves, of the entry's signature, would be served."""
        if not self._trace.holds() or not all(is_short(leaves[k]) for k in self._short):
            return False
        outside = self._trace.outside()
        return outside is not None and self._guards_hold([*map(native, leaves), *outside])

    def _guards_hold(self, arguments: Sequence[Any]) -> bool:
        """Return whether the guards on values hold."""
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
        """Return the program's arguments except the constants; None if a guard does not hold."""
        if self._short and not all(is_short(leaves[k]) for k in self._short):
            return None
        arguments = leaves if self._are_plain else list(map(native, leaves))
        if self._read is None:
            return arguments
        outside = self._read()
        return None if outside is None else arguments + outside

    def _run(self, arguments: list[Any], out: Out | None = None) -> Sequence[Any]:
        """Run the program, with results in arrays of ``out`` where possible. Raises GuardFailed, _Unserved, and the error of a
        failed check."""
        program = self._program
        if program.template is None or program.instance is None:
            return ()
        executable = program.template.executable
        chosen: Sequence[Any] | None = None
        if out is not None and program.template.is_native:
            chosen = chosen_results(out, executable.plan, program.outcomes, arguments)
        elif out is not None:
            chosen = chosen_on_device(out, program.outcomes, len(executable.program.results), arguments)
        try:
            return executable.call(program.instance, arguments + self._constants, chosen)
        except CheckFailed as failed:
            if failed.error == GUARD:
                raise GuardFailed(int(str(failed))) from None
            if failed.error == BEYOND:
                raise _Unserved from None
            raise_failure(self._trace.function, failed, arguments, self._trace.errors)

    def finish(self, results: list[Any], leaves: Sequence[Any], outside: Sequence[Any]) -> Any:
        """Return the result of a call whose program has run natively with these results."""
        arguments = [*map(native, leaves), *outside]
        template, instance = self._program.template, self._program.instance
        results = list(map(_array, results))
        if template is not None and instance is not None and not template.executable.plan.gives_all:
            results = [source.out_of(arguments + self._constants, results) for source in instance.gives]
        return self._filled(results, leaves, arguments)

    def fail(self, status: int, leaves: Sequence[Any], outside: Sequence[Any]) -> None:
        """Raise the error of a program that ran natively; return if the program does not serve its arguments."""
        template = self._program.template
        assert template is not None
        error = template.executable.failure(status)
        if not isinstance(error, CheckFailed):
            raise error
        if error.error not in (GUARD, BEYOND):
            arguments = [*map(native, leaves), *outside]
            raise_failure(self._trace.function, error, arguments, self._trace.errors)

    def serve(self, leaves: list[Any], out: Out | None = None) -> Any:
        """Run a call whose results may be in arrays of the caller: in arguments whose memory the program reuses, and in the
        arrays of ``out``, one for each leaf of the result or None. Returns MISS if the trace does not hold."""
        arguments = self._arguments(leaves)
        if arguments is None:
            return MISS
        if out is not None and self._program.template is not None:
            check_device(out, self._program.template.device)
        if self._reused:
            arguments = with_separate_memory(arguments, self._reused)
        try:
            results = self._run(arguments, out)
        except _Unserved:
            return MISS
        return self._result(results, leaves, arguments, out)

    def interpreted(self, leaves: list[Any], out: Out | None = None) -> Any:
        """Return the result of the traced call from the interpreter, which follows the traced path; MISS if the outside values
        have changed type."""
        outside = self._trace.outside()
        if outside is None:
            return MISS
        arguments = [*map(native, leaves), *outside]
        function = without_guards(_expanded(split_outcomes(self._trace)[0]))
        return self._result(interpret(function, *_typed(function, arguments)), leaves, arguments, out)

    def _result(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any], out: Out | None) -> Any:
        if out is None:
            return self._filled(results, leaves, arguments)
        return self._fill(write_results(out, self._outcomes(results, leaves, arguments)))

    def _filled(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any]) -> Any:
        if self._is_direct:
            return self._fill(list(map(scalar_of, results, self._kinds)))
        return self._fill(self._outcomes(results, leaves, arguments))

    def changed(self) -> list[str]:
        """Return the names of the outside numbers, of containers of them, and of the lengths of lists, that differ from those in
        the trace."""
        stored = frozenset(self._trace.changes)
        return [name for guard in self._trace.guards for name in guard.changed_names(guard.describe in stored)]

    def unstable(self) -> list[str]:
        """Return the names of the values that the trace depends on and that are another object at each read."""
        return [guard.describe for guard in self._trace.guards if not guard.is_stable()]

    def _outcomes(self, results: Sequence[Any], leaves: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """Return the leaves of the result, where some are arguments returned unchanged, or the same value twice."""
        leaves_out: list[Any] = []
        for outcome, value in zip(self._program.outcomes, self._trace.function.results, strict=True):
            match outcome.source:
                case "result":
                    array = results[outcome.index]
                    template = self._program.template
                    if template is not None and outcome.index in template.passed_through:
                        array = _copied(array, value)
                case "repeat":
                    array = _copied(results[outcome.index], value)
                case "leaf":
                    leaves_out.append(leaves[outcome.index])
                    continue
                case _:
                    array = _copied(arguments[outcome.index], value)
            leaves_out.append(scalar_of(array, outcome.kind))
        return leaves_out


def _copied(array: Any, value: Value) -> Any:
    """Copy an array for a result; device arrays are immutable and need no copy."""
    return array if isinstance(array, Remote) else np.array(array, value.type.dtype.numpy, order="C")


def _array(result: Any) -> Any:
    """Return a result of a native run, which may be a Python number, as an array."""
    return result if hasattr(result, "ndim") else np.asarray(result)


def _expanded(function: Function) -> Function:
    """Expand the gradients of a function and check its guards first."""
    return guards_first(inline_custom.uncustom(grad.grad(passes.run(function, passes.BEFORE_GRAD))))


def _typed(function: Function, arguments: Sequence[Any]) -> list[Any]:
    return [np.asarray(a, p.type.dtype.numpy) for a, p in zip(arguments, function.parameters, strict=True)]


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf can be a program's argument unchanged."""
    return not isinstance(leaf, np.ndarray) or (leaf.ndim > 0 and leaf.dtype.isnative)
