"""What the failed check of a program is for the user: NumPy's exception, at the user's line."""

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
    """The exception that a failed check of a trace's program names, with the user's line in a note."""
    function = grad.grad(function)
    typed = [_typed(a, p.type.dtype.numpy) for a, p in zip(arguments, function.parameters, strict=True)]
    ran: dict[Value, tuple[Instruction, Sequence[Any], Any]] = {}

    def observe(instruction: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> None:
        ran.update({v: (instruction, operands, r) for v, r in zip(instruction.results, results, strict=True)})

    try:
        interpret(function, *typed, effects=False, observe=observe)
    except CheckFailed as again:
        if str(again) == str(failed):
            return exception_of(again, ran)
        return _placed(failed, str(failed), again.loc.file, again.loc.line)
    return _placed(failed, str(failed), "", 0)


def _typed(argument: Any, dtype: Any) -> Any:
    """An argument for the interpreter. Integers are copied: NumPy reads indices again after it has checked them, and another
    thread may change them."""
    return np.array(argument, dtype) if np.dtype(dtype).kind in "iu" else np.asarray(argument, dtype)


def exception_of(failed: CheckFailed, ran: Ran) -> Exception:
    """The exception that a check names which failed in the interpreter; ``ran`` as ``range_message`` has it."""
    message = str(failed) if failed.condition is None else range_message(str(failed), failed.condition, ran)
    if failed.row:
        message = f"{message.rstrip('.')}, in row {failed.row[0] if len(failed.row) == 1 else failed.row}"
    return _placed(failed, message, failed.loc.file, failed.loc.line)


def placed(failed: CheckFailed, message: str, place: str) -> Exception:
    """The exception that a check names, with a place in a note."""
    error = _placed(failed, message, "", 0)
    if place:
        error.add_note(f"  at {place}, in compiled code")
    return error


def _placed(failed: CheckFailed, message: str, file: str, line: int) -> Exception:
    kind = OverflowError if failed.error == BEYOND else getattr(builtins, failed.error, None) or getattr(np.linalg, failed.error)
    error: Exception = kind(message)
    if file:
        error.__traceback__ = traceback_at(file, line)
        error.add_note(f"  at {shown(file)}:{line}, in compiled code: {line_text(file, line)}".rstrip(": "))
    return error
