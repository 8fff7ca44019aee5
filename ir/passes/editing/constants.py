"""The constants that values are known to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.reindex import broadcast


def constant_of(value: Value, definitions: Mapping[Value, Instruction]) -> Any:
    """Return the number that every element of a value is known to be; None if there is none. ``definitions``: the instructions by
    their results."""
    definition = definitions.get(value)
    if definition is not None and definition.op is broadcast:
        definition = definitions.get(definition.operands[0])
    return definition.params["value"] if definition is not None and isinstance(definition.op, Constant) else None
