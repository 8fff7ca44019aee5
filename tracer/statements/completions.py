"""How a block ends: at its last statement, or by ``continue``, ``break`` or ``return``.

A block that ends at its last statement returns None, any other a completion. If values decide how it ends, ``code`` is a traced
integer, and ``value`` is what it returns where ``code`` is ``RETURN``, and of no meaning elsewhere. An iteration of a loop in a
``try`` statement may end by an exception too, whose code is ``RAISE`` or more (``tracer/statements/try_statements.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.statements.variables import UNBOUND
from pullback.tracer.syntax.table import operator
from pullback.tracer.user_code.errors import TraceError

NEXT, CONTINUE, BREAK, RETURN, RAISE = range(5)


@dataclass(frozen=True, kw_only=True, eq=False)
class Completion:
    """An end of a block: ``code`` is one of the codes above, or a traced one, which is one of ``possible``. ``aliases``: arrays
    that are, or of which is a view, an array in the value of a join."""

    code: int | TracedArray
    value: Any = UNBOUND
    possible: frozenset[int] = frozenset((NEXT, CONTINUE, BREAK, RETURN))
    aliases: tuple[TracedArray, ...] = ()

    @property
    def leaves(self) -> bool:
        """Whether it is known to leave the loop and the block around it, by a ``return`` or an exception."""
        return isinstance(self.code, int) and self.code >= RETURN

    @property
    def is_decided(self) -> bool:
        """Whether the code is known in the trace."""
        return isinstance(self.code, int)


def code_of(completion: Completion | None) -> int | TracedArray:
    """Return the code of an end; ``NEXT`` for None."""
    return NEXT if completion is None else completion.code


def possible_codes(completion: Completion | None) -> frozenset[int]:
    """Return the codes that an end may have."""
    code = code_of(completion)
    if isinstance(code, int):
        return frozenset((code,))
    assert completion is not None
    return completion.possible


def is_code(completion: Completion | None, *codes: int) -> Any:
    """Return whether an end has one of the codes: a bool, or a traced one."""
    code = code_of(completion)
    if isinstance(code, int):
        return code in codes
    result = code == codes[0]
    for other in codes[1:]:
        result = np.logical_or(result, code == other)
    return result


@operator("return")
def returned(value: Any) -> Completion:
    """Return the end of a block by a ``return`` of a value."""
    return Completion(code=RETURN, value=value)


@operator("break")
def broken() -> Completion:
    """Return the end of a block by ``break``."""
    return Completion(code=BREAK)


@operator("continue")
def continued() -> Completion:
    """Return the end of a block by ``continue``."""
    return Completion(code=CONTINUE)


@operator("completed")
def completed(completion: Completion | None) -> bool:
    """Return whether the statement before left its block. Raises TraceError if values decide it."""
    if completion is None:
        return False
    if not completion.is_decided:
        raise TraceError("a return, break or continue under a traced value inside a with, try or match statement; move it out")
    return completion.code != NEXT
