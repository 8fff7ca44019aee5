"""Conversion of a failed check of a program into NumPy's exception at the user's line."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pullback.ir import Function, Instruction, Loc, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.hoist_guards import BEYOND
from pullback.tracer.arrays.tree import TreeDef, unflatten
from pullback.tracer.user_code.check_messages import Ran, range_message
from pullback.tracer.user_code.clauses import NOT_HANDLED
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.source import line_text, shown
from pullback.tracer.user_code.tracebacks import traceback_at

if TYPE_CHECKING:
    from pullback.ir.passes.transforms import expand as grad
else:
    grad = later("pullback.ir.passes.transforms.expand")


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorTemplate:
    """An exception of the user's that a check raises with run-time values.

    ``tree`` is the structure of the positional and keyword arguments of its class ``kind``, and of its attributes. The class is
    called if ``is_called``, else its ``__init__`` ran in the trace. ``weak`` and ``is_array``: whether a leaf is a Python number,
    and an array. ``cause``: the exception from which it is raised.
    """

    kind: type[BaseException]
    is_called: bool
    tree: TreeDef
    weak: tuple[str, ...]
    is_array: tuple[bool, ...]
    cause: ErrorTemplate | None
    suppresses_context: bool

    def exception(self, values: Iterator[Any]) -> BaseException:
        """Return the exception of the values of the leaves, own ones and then those of the cause; the error of a class or format
        that fails."""
        try:
            return self._filled(values)
        except Exception as error:
            return error.with_traceback(None)

    def _filled(self, values: Iterator[Any]) -> BaseException:
        own = [_python(next(values), weak, is_array) for weak, is_array in zip(self.weak, self.is_array, strict=True)]
        args, kwargs, attributes = unflatten(self.tree, own)
        if self.is_called:
            error = self.kind(*args, **kwargs)
        else:
            error = self.kind.__new__(self.kind, *args)
            error.args = tuple(args)
            for name, value in attributes.items():
                BaseException.__setattr__(error, name, value)
        if self.cause is not None:
            error.__cause__ = self.cause.exception(values)
        error.__suppress_context__ = self.suppresses_context
        return error


def _python(value: Any, weak: str, is_array: bool) -> Any:
    """Return a value of the interpreter as the Python number, NumPy scalar or array that it is in the user's function."""
    array = np.asarray(value)
    return array.item() if weak else array if is_array else array[()]


def raise_failure(
    function: Function, failed: CheckFailed, arguments: Sequence[Any], errors: Sequence[ErrorTemplate]
) -> NoReturn:  # fmt: skip
    """Raise the exception named by a failed check of a traced program, with the user's line in a note. ``errors``: the exceptions
    of the user's that its checks raise, which may have causes of their own."""
    raise _failure(function, failed, arguments, errors)


def _failure(
    function: Function, failed: CheckFailed, arguments: Sequence[Any], errors: Sequence[ErrorTemplate]
) -> Exception:  # fmt: skip
    """Return the exception of ``raise_failure``."""
    function = grad.grad(function)
    typed = [_typed(a, p.type.dtype.numpy) for a, p in zip(arguments, function.parameters, strict=True)]
    ran: dict[Value, tuple[Instruction, Sequence[Any], Any]] = {}

    def observe(instruction: Instruction, operands: Sequence[Any], results: Sequence[Any]) -> None:
        ran.update({v: (instruction, operands, r) for v, r in zip(instruction.results, results, strict=True)})

    try:
        interpret(function, *typed, effects=False, observe=observe)
    except CheckFailed as repeated:
        if str(repeated) == str(failed):
            error = exception_of(repeated, ran, errors)
            error.__suppress_context__ = True
            return error
        return _located(failed, str(failed), repeated.loc.file, repeated.loc.line)
    return _located(failed, str(failed), "", 0)


def _typed(argument: Any, dtype: Any) -> Any:
    """Return an argument as an array for the interpreter.

    Integers are copied: NumPy reads indices a second time after checking them, and another thread may change them.
    """
    return np.array(argument, dtype) if np.dtype(dtype).kind in "iu" else np.asarray(argument, dtype)


def exception_of(failed: CheckFailed, ran: Ran, errors: Sequence[ErrorTemplate] = ()) -> Exception:
    """Return the exception of a check that failed in the interpreter; ``ran`` as in ``range_message``, ``errors`` as in
    ``failure``."""
    if failed.raises is not None and failed.raises < len(errors):
        return _raised(errors[failed.raises], failed)
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
    if failed.error == NOT_HANDLED:
        return TraceError(message, Loc(file, line))
    kind = OverflowError if failed.error == BEYOND else getattr(builtins, failed.error, None) or getattr(np.linalg, failed.error)
    error: Exception = kind(message) if message else kind()
    if file:
        _locate(error, file, line)
    return error


def _locate(error: BaseException, file: str, line: int) -> None:
    """Give an exception a traceback that ends at a line of the user's, and a note."""
    error.__traceback__ = traceback_at(file, line)
    error.add_note(f"  at {shown(file)}:{line}, in compiled code: {line_text(file, line)}".rstrip(": "))


def _raised(template: ErrorTemplate, failed: CheckFailed) -> Exception:
    """Return the user's exception, with the values that the check that failed has read."""
    error: Any = template.exception(iter(failed.values))
    _locate(error, failed.loc.file, failed.loc.line)
    if failed.row:
        error.add_note(f"  in row {failed.row[0] if len(failed.row) == 1 else failed.row}")
    return error
