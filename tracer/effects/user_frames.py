"""Python frames of the user's functions, below which a host call runs.

A compiled program has no frames of the user's. A function that looks at its callers, as a traceback does, finds here frames of
the same file, line, name and globals as where the traced function called it.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any

from pullback.tracer.names.globals import Namespace
from pullback.tracer.user_code.ownership import is_hidden_file
from pullback.tracer.user_code.source import line_text
from pullback.tracer.user_code.syntax_trees import undisturbed

MOST_FRAMES = 100
"""The largest number of frames that are repeated: a deeper recursion shows its innermost calls."""

Caller = Callable[[Callable[[], Any]], Any]
"""A function that calls another one, from a line of the user's."""


def callers() -> tuple[Caller, ...]:
    """Return a function for each running frame of the traced function and of those that it called, innermost first."""
    result: list[Caller] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(result) < MOST_FRAMES:
        code = frame.f_code
        if isinstance(frame.f_globals, Namespace) and not is_hidden_file(code.co_filename):
            caller = _calling(code.co_filename, frame.f_lineno, code.co_name, code.co_qualname)
            result.append(FunctionType(caller, frame.f_globals.real, code.co_name))
        frame = frame.f_back
    return tuple(result)


def called_below(frames: Sequence[Caller], function: Callable[[], Any]) -> Any:
    """Return ``function()``, called below these frames, innermost first."""
    for frame in frames:
        function = functools.partial(frame, function)
    return function()


@functools.lru_cache(maxsize=1024)
def _calling(file: str, line: int, name: str, qualified: str) -> CodeType:
    """Return the code of a function that calls its argument, which stands at a line of a file."""
    tree = undisturbed(lambda: ast.parse("lambda function: function()", mode="eval"))
    width = len(line_text(file, line))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.arg):
            node.lineno = node.end_lineno = line
            node.col_offset, node.end_col_offset = 0, width
    code = next(c for c in undisturbed(lambda: compile(tree, file, "eval")).co_consts if isinstance(c, CodeType))
    return code.replace(co_name=name, co_qualname=qualified, co_firstlineno=line)
