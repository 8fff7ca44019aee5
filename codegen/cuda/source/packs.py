"""Descriptions of the packed accesses of a CUDA loop, several contiguous elements at a time. ``vector_accesses`` creates them
and writes their text."""

from __future__ import annotations

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction


@dataclass(frozen=True, eq=False)
class Packs:
    """``loads`` and ``stores`` of a body that are packed; ``head``: instructions that compute the index of a pack's first
    element; ``body``: the others, which run for each element. ``is_pure``: the body may also run for elements beyond the
    end. ``width``: elements of a pack."""

    width: int
    loads: tuple[Instruction, ...]
    stores: tuple[Instruction, ...]
    head: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    is_pure: bool


@dataclass
class Packing:
    """A loop over packs while it is written. ``count``: the number of elements in the pack; ``at``: the index of the current
    element; ``names``: the pack variable of each load or store; ``sums``: the variables that accumulate a pack's
    contribution to a partial result."""

    packs: Packs
    count: str
    at: str
    names: dict[Instruction, str]
    sums: dict[str, str]

    @property
    def guard(self) -> str:
        """Return the condition, as C text, that holds for elements within bounds, if the body also runs for elements beyond
        the end."""
        return f"if ({self.at} < {self.count}) " if self.packs.is_pure else ""
