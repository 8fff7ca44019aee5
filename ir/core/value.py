"""SSA values."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.core.types import Type


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """An SSA value, compared by identity. ``name`` is a hint for the printer; empty for a number."""

    type: Type
    name: str = ""
