"""Python's own branches and loops in a trace: the operators that rewritten functions call (``tracer/syntax``)."""

from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.statements import branches, completions, items, loops
from pullback.tracer.user_code.errors import TraceError

__all__ = ["branches", "completions", "items", "loops", "register", "roll"]


def register() -> None:
    """Register the operators, as the import of this package does."""


def roll() -> None:
    """Make the current trace compile Python's branches and loops. Raises TraceError, for a retrace, the first time."""
    root = frame_of().root
    if root.follows_syntax is None:
        error = TraceError('a function with loops="roll" in a trace of another; give the other one the option')
        error.wants_rolled = True
        raise error
