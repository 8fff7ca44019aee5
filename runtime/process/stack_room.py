"""Reserve memory for the frames of Python functions.

CPython allocates frames in chunks of 16 KiB, and frees a chunk as soon as the last function in it returns. If a loop happens
to run at the end of a chunk, each call that it makes maps memory, takes a page fault, and unmaps it, which interrupts other
processors: a compilation took up to half as long again, depending on its caller's depth. A frame that requests more gets a
larger chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

STACK_WORDS = 1 << 15
"""The stack size, in words, of the frame. Its chunk is the next power of two above, so calls inside have nearly as many words
left."""


def with_reserved_stack(do: Callable[[], Result]) -> Result:
    """Return the result of ``do``, which runs with frame memory reserved for its calls."""
    return do()


with_reserved_stack.__code__ = with_reserved_stack.__code__.replace(co_stacksize=STACK_WORDS)
