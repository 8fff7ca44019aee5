"""What NumPy says where a check of a program fails on numbers that are out of range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.ir import Instruction, Value

OUT_OF_RANGE = "an index is out of bounds for axis"
OUT_OF_BOUNDS = "a Python integer is out of bounds for"
"""How the messages of such checks begin."""

Ran = Mapping[Value, tuple[Instruction, Sequence[Any], Any]]
"""For each value of a run, the instruction that defines it, its operands and the value."""


def range_message(message: str, condition: Value, ran: Ran) -> str:
    """What NumPy says of the index that a failed check found out of range; of another check its own message.

    ``condition`` is what the check read; ``ran`` has for each value the instruction that made it, its operands and the value.
    """
    if message.startswith(OUT_OF_BOUNDS) and condition in ran:
        return _bounds_message(message, condition, ran)
    if not message.startswith(OUT_OF_RANGE) or condition not in ran:
        return message
    made, _, inside = ran[condition]
    while made.op.name == "bitor":  # or the row does not count
        made, _, _ = ran[made.operands[0]]
    _, (index, size), _ = ran[made.operands[1]]
    outside = np.asarray(index)[~np.asarray(inside)]
    return f"index {outside.flat[0]} {message.removeprefix('an index ')} with size {np.asarray(size).flat[0]}"


def _bounds_message(message: str, condition: Value, ran: Ran) -> str:
    """What NumPy says of the Python integer that a failed check found out of bounds."""
    _, _, inside = ran[condition]
    made, operands, _ = ran[condition]
    while made.op.name in ("bitor", "bitand"):  # or the row does not count; both bounds
        made, operands, _ = ran[made.operands[0]]
    outside = np.broadcast_to(operands[0], np.shape(inside))[~np.asarray(inside)]
    return f"Python integer {int(outside.flat[0])} {message.removeprefix('a Python integer is ')}"
