"""Errors of this package itself during a trace, which would pass for errors of the user's function.

After such an error the function is traced in another way, so that its result is right all the same. With ``PULLBACK_STRICT=1``,
as in the tests, the error is raised as the cause of a ``Defect`` instead.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable
from types import TracebackType

from pullback.ir.core.environment import is_strict
from pullback.tracer.user_code.ownership import is_own_file, is_users


class Defect(BaseException):
    """An error of this package, with ``PULLBACK_STRICT=1``. No ``except Exception`` clause handles it."""

    __module__ = "pullback"


REFUSED = (ValueError, TypeError, ArithmeticError)
"""Errors with which functions refuse the values that they are called with, which may be the user's."""


def is_defect(error: BaseException) -> bool:
    """Return whether an instruction of this package other than a ``raise`` statement failed, or an assertion.

    A call that fails with one of ``REFUSED`` is none: it may be of a function of NumPy or Python, with values of the user's.
    """
    own: TracebackType | None = None
    last = error.__traceback__
    while last is not None:
        code = last.tb_frame.f_code
        if is_users(code):
            own = None
        elif is_own_file(code.co_filename):
            own = last
        last = last.tb_next
    if own is None or getattr(error, "is_by_statement", False):
        return False
    if isinstance(error, AssertionError):
        return True
    instruction = dis.opname[own.tb_frame.f_code.co_code[own.tb_lasti]]
    if "CALL" in instruction and isinstance(error, REFUSED):
        return False
    return instruction not in ("RAISE_VARARGS", "RERAISE")


def note_defect(defects: list[Exception], error: Exception) -> None:
    """Append an error that becomes a refusal to ``defects`` if it is one of this package, with ``PULLBACK_STRICT=1``."""
    if is_strict() and is_defect(error):
        defects.append(error)


def raise_defect(errors: Iterable[Exception], final: BaseException | None = None) -> None:
    """With ``PULLBACK_STRICT=1``, raise a Defect for the first defect among the errors that traces of a call met, unless the
    function raises one of the same type (``final``) in plain Python."""
    if not is_strict():
        return
    for error in errors:
        if is_defect(error) and type(error) is not type(final):
            raise Defect(f"{type(error).__name__}: {error}") from error
