"""Conversions between texts, syntax trees and code, by one thread at a time.

CPython 3.11 counts the depth of a tree that it converts in a counter of the interpreter, not of the thread: a conversion during
which another thread converts a tree ends with a SystemError ("AST constructor recursion depth mismatch").
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

MOST_ATTEMPTS = 10
"""Largest number of attempts of a conversion that a thread of the user's disturbs."""

_converting = threading.RLock()


def undisturbed(convert: Callable[[], Result]) -> Result:
    """Return the result of a conversion. Raises what it raises, ValueError if other threads disturb each attempt."""
    with _converting:
        for _ in range(MOST_ATTEMPTS):
            try:
                return convert()
            except SystemError:
                continue
    raise ValueError("other threads convert syntax trees at the same time")
