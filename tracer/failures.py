"""Conversion of a failed check of a program into NumPy's exception at the user's line."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir import Function, Instruction, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.hoist_guards import BEYOND
from pullback.tracer.user_code.check_messages import Ran, range_message
from pullback.tracer.user_code.source import line_text, shown
from pullback.tracer.user_code.tracebacks import traceback_at

if TYPE_CHECKING:
    from pullback.ir.passes.transforms import expand as grad
else:
    grad = later("pullback.ir.passes.transforms.expand")


def failure(function: Function, failed: CheckFailed, arguments: Sequence[Any]) -> Exception:
    """Return the exception named by a failed check of a traced program, with the user's line in a note."""
    function = grad.grad(function)
    typed = [_typed(a, p.type.dtype.numpy) for a, p in zip(arguments, function.parameters, strict=True)]
    ran: dict[Value, tuple[Instruction, Sequence[Any], Any]] = {}

    def observe(instruction: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> None:
        ran.update({v: (instruction, operands, r) for v, r in zip(instruction.results, results, strict=True)})

    try:
        interpret(function, *typed, effects=False, observe=observe)
    except CheckFailed as repeated:
        if str(repeated) == str(failed):
            return exception_of(repeated, ran)
        return _located(failed, str(failed), repeated.loc.file, repeated.loc.line)
    return _located(failed, str(failed), "", 0)


def _typed(argument: Any, dtype: Any) -> Any:
    """Return an argument as an array for the interpreter.

    Integers are copied: NumPy reads indices a second time after checking them, and another thread may change them.
    """
    return np.array(argument, dtype) if np.dtype(dtype).kind in "iu" else np.asarray(argument, dtype)


def exception_of(failed: CheckFailed, ran: Ran) -> Exception:
    """Return the exception of a check that failed in the interpreter; ``ran`` as in ``range_message``."""
    message = str(failed) if failed.condition is None else range_message(str(failed), failed.condition, ran)
    if failed.row:
        message = f"{message.rstrip('.')}, in row {failed.row[0] if len(failed.row) == 1 else failed.row}"
    return _located(failed, message, failed.loc.file, failed.loc.line)


def located(failed: CheckFailed, message: str, location: str) -> Exception:
    """Return the exception that a check names, with a source location in a note."""
    error = _located(failed, message, "", 0)
    if location:
        error.add_note(f"  at {location}, in compiled code")
    return error


def _located(failed: CheckFailed, message: str, file: str, line: int) -> Exception:
    kind = OverflowError if failed.error == BEYOND else getattr(builtins, failed.error, None) or getattr(np.linalg, failed.error)
    error: Exception = kind(message)
    if file:
        error.__traceback__ = traceback_at(file, line)
        error.add_note(f"  at {shown(file)}:{line}, in compiled code: {line_text(file, line)}".rstrip(": "))
    return error
