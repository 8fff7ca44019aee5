"""Implement ``PULLBACK_DISABLE_JIT=1``: calls of compiled functions run plain Python."""

from __future__ import annotations

from typing import ParamSpec, TypeVar

from pullback.compiled.function import Jitted
from pullback.programs.entry import Entry
from pullback.tracer import Signature, current

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Plain(Jitted[P, R]):
    """A compiled function whose calls run the Python function, so that breakpoints stop in it and coverage counts its lines.

    Its transforms, and calls inside another function's trace, are compiled as usual.
    """

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is not None:
            return super().__call__(*args, **kwargs)
        result: R = self.__wrapped__(*args, **kwargs)
        return result

    def _path(self, call: Signature, entry: Entry) -> str:
        return "Python, since PULLBACK_DISABLE_JIT=1 runs the function as it is"
