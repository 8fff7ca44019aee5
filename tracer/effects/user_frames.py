"""Python frames of the user's functions, below which a host call runs.

A compiled program has no frames of the user's. A function that looks at its callers, as a traceback does, finds here frames of
the same file, line, name and globals as where the traced function called it.
"""

from __future__ import annotations

import ast
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

from pullback.tracer.names.globals import Namespace
from pullback.tracer.user_code.ownership import is_hidden_file, is_own_file
from pullback.tracer.user_code.source import line_text
from pullback.tracer.user_code.syntax_trees import undisturbed

MOST_FRAMES = 100
"""The largest number of frames that are repeated: a deeper recursion shows its innermost calls."""

Caller = Callable[[Callable[[], Any]], Any]
"""A function that calls another one, from a line of the user's."""


def callers() -> tuple[Caller, ...]:
    """Return a function for each running frame of the traced function and of those that it called, innermost first."""
    return _without_blocks((f.f_code, f.f_lineno, f.f_globals) for f in _running() if _is_traced(f))


def callers_outside(count: int) -> tuple[Caller, ...]:
    """Return a function for each of the innermost frames of the code that called this package."""
    frames = itertools.dropwhile(lambda f: _is_own(f.f_code), _running())
    return tuple(_caller(f.f_code, f.f_lineno, f.f_globals) for f in itertools.islice(frames, count))


def callers_of(traceback: TracebackType | None) -> tuple[Caller, ...]:
    """Return a function for each frame of the traced functions in a traceback, innermost first."""
    entries = []
    while traceback is not None:
        frame = traceback.tb_frame
        if _is_traced(frame):
            entries.append((frame.f_code, traceback.tb_lineno, frame.f_globals))
        traceback = traceback.tb_next
    return _without_blocks(reversed(entries))


def _without_blocks(entries: Iterable[tuple[CodeType, int, dict[str, Any]]]) -> tuple[Caller, ...]:
    """Return a function for each of these frames, innermost first, but one for a function and its blocks, which run as functions
    inside of it, at the innermost line."""
    kept: list[tuple[CodeType, int, dict[str, Any]]] = []
    for code, line, names in entries:
        inner = kept[-1][0] if kept else code
        if inner is not code and inner.co_qualname == code.co_qualname and inner.co_firstlineno >= code.co_firstlineno:
            kept[-1] = code, kept[-1][1], names
        else:
            kept.append((code, line, names))
    return tuple(_caller(*entry) for entry in kept[:MOST_FRAMES])


def _running() -> Iterator[FrameType]:
    """Yield the running frames, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _is_traced(frame: FrameType) -> bool:
    return isinstance(frame.f_globals, Namespace) and not is_hidden_file(frame.f_code.co_filename)


def _is_own(code: CodeType) -> bool:
    return is_own_file(code.co_filename) or code.co_filename.startswith("<frozen")


def _caller(code: CodeType, line: int, names: dict[str, Any]) -> Caller:
    """Return a function that calls another one from a line of some code."""
    real = names.real if isinstance(names, Namespace) else names
    return FunctionType(_calling(code.co_filename, line, code.co_name, code.co_qualname), real, code.co_name)


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
