"""Room for the frames of Python functions.

CPython keeps frames in pieces of memory of 16 KiB, and gives one back as soon as the last function in it returns. Where a loop
happens to run at the end of a piece, each call that it makes maps memory, meets a page fault, and unmaps it, and processors tell
each other so: a compilation took up to half as long again, by how deep its caller was. A frame that asks for more gets a larger
piece.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

ROOM = 1 << 15
"""The words that the frame asks for. What it gets is a power of two above that, so calls inside have nearly as many."""


def with_room(do: Callable[[], Result]) -> Result:
    """What a function gives, which runs with room for its calls."""
    return do()


with_room.__code__ = with_room.__code__.replace(co_stacksize=ROOM)
