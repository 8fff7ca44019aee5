"""Tracebacks as the user sees them: frames of this package, NumPy and SciPy are removed from errors that leave a call.

The environment variable ``PULLBACK_TRACEBACK=full`` keeps them.
"""

from __future__ import annotations

import ast
import functools
import os
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import ParamSpec, TypeVar

from pullback.ir.core.environment import TRACEBACK
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_hidden_file, is_users
from pullback.tracer.user_code.source import function_at, line_text
from pullback.tracer.user_code.syntax_trees import undisturbed

P = ParamSpec("P")
R = TypeVar("R")


def keep_users_frames(error: BaseException) -> None:
    """Remove hidden frames from the traceback of an error, and from the tracebacks of its causes.

    An error that was raised and replaced within hidden code alone is no longer shown as the cause of the other.
    """
    if os.environ.get(TRACEBACK.name) == "full":
        return
    error.__traceback__ = _users(error.__traceback__, ends_at_user=isinstance(error, TraceError))
    running = _running_frames()
    seen = {id(error)}
    errors = [error]
    while errors:
        current = errors.pop()
        for other in (current.__cause__, current.__context__):
            traceback = None if other is None else other.__traceback__
            if other is None or traceback is None or id(other) in seen or traceback.tb_frame in running:
                continue
            seen.add(id(other))
            other.__traceback__ = _users(traceback)
            if other.__traceback__ is not None:
                errors.append(other)
            elif other is current.__cause__:
                current.__cause__ = None
            else:
                current.__context__ = None


def with_users_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that errors leaving it show only the user's frames."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            keep_users_frames(error)
            raise

    return call


def traceback_at(file: str, line: int) -> TracebackType | None:
    """Return a traceback that ends at a line of the user's source, for failures in compiled code."""
    text = line_text(file, line)
    module = undisturbed(lambda: ast.parse("raise KeyError"))
    for node in ast.walk(module):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno = node.end_lineno = line
            node.col_offset, node.end_col_offset = 0, len(text)
    code = undisturbed(lambda: compile(module, file, "exec")).replace(co_name=function_at(file, line))
    try:
        exec(code, {})
    except KeyError as error:
        assert error.__traceback__ is not None
        return error.__traceback__.tb_next
    return None


def _running_frames() -> set[FrameType]:
    """Return the frames on the stack: an error caught in one of them does not belong to this call."""
    frames: set[FrameType] = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.add(frame)
        frame = frame.f_back
    return frames


def _users(traceback: TracebackType | None, ends_at_user: bool = False) -> TracebackType | None:
    """Return a traceback without the hidden frames.

    ``ends_at_user``: remove also the frames of other libraries below the user's last frame.
    """
    kept = []
    while traceback is not None:
        if not is_hidden_file(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    last = max((k for k, entry in enumerate(kept) if is_users(entry.tb_frame.f_code)), default=None)
    if ends_at_user and last is not None:
        del kept[last + 1 :]
    shortened: TracebackType | None = None
    for entry in reversed(kept):
        shortened = TracebackType(shortened, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return shortened
