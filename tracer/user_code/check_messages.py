"""NumPy's error messages for failed checks of a program on values out of range."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir import Instruction, Value

OUT_OF_RANGE = "an index is out of bounds for axis"
OUT_OF_BOUNDS = "a Python integer is out of bounds for"
"""Prefixes of the messages of such checks."""


class Limit(str):
    """The message of a check that fails for what Python computes and compiled code does not. An ``except`` clause, which Python
    does not run then, does not handle its error."""


class Handled(str):
    """The message of a check, with a function that returns the exception that a clause handles where the check fails: its text
    shows values."""

    error: Callable[[], Exception]

    def __new__(cls, message: str, error: Callable[[], Exception]) -> Handled:
        handled = super().__new__(cls, message)
        handled.error = error
        return handled


Ran = Mapping[Value, tuple[Instruction, Sequence[Any], Any]]
"""For each value of a run, the instruction that defines it, its operands and the value."""


def range_message(message: str, condition: Value, ran: Ran) -> str:
    """Return NumPy's message for the index that a failed check found out of range; the check's own message for other checks.

    ``condition`` is the value that the check read; ``ran`` has, for each value, its instruction, that instruction's operands,
    and the value itself.
    """
    if message.startswith(OUT_OF_BOUNDS) and condition in ran:
        return _bounds_message(message, condition, ran)
    if not message.startswith(OUT_OF_RANGE) or condition not in ran:
        return message
    definition, _, inside = ran[condition]
    while definition.op.name == "bitor":  # or-ed with a mask of inactive rows
        definition, _, _ = ran[definition.operands[0]]
    end = definition.operands[1] if definition.op.name == "bitand" else definition.result  # one bound may be proved
    _, (index, size), _ = ran[end]
    outside = np.asarray(index)[~np.asarray(inside)]
    return f"index {outside.flat[0]} {message.removeprefix('an index ')} with size {abs(int(np.asarray(size).flat[0]))}"


def _bounds_message(message: str, condition: Value, ran: Ran) -> str:
    """Return NumPy's message for the Python integer that a failed check found out of bounds."""
    _, _, inside = ran[condition]
    definition, operands, _ = ran[condition]
    while definition.op.name in ("bitor", "bitand"):  # or-ed with a mask of inactive rows; both bounds
        definition, operands, _ = ran[definition.operands[0]]
    outside = np.broadcast_to(operands[0], np.shape(inside))[~np.asarray(inside)]
    return f"Python integer {int(outside.flat[0])} {message.removeprefix('a Python integer is ')}"
