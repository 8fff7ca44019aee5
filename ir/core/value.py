"""SSA values."""

from __future__ import annotations

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import Type


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """An SSA value, compared by identity. ``name``: a hint for the printer; the printer numbers values without one."""

    type: Type
    name: str = ""
