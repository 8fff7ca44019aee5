"""What a CUDA loop reads and writes several neighbours at a time: data, which ``vector_accesses`` makes and writes as text."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.ir.core.structure import Instruction


@dataclass(frozen=True, eq=False)
class Packs:
    """``loads`` and ``stores`` of a body that are packed; ``head``: what a pack's first index needs; ``body``: the rest, which is
    run for each element. ``is_pure``: the body may also be run for what is behind the end. ``width``: elements of a pack."""

    width: int
    loads: tuple[Instruction, ...]
    stores: tuple[Instruction, ...]
    head: tuple[Instruction, ...]
    body: tuple[Instruction, ...]
    is_pure: bool


@dataclass
class Packing:
    """A loop over packs as it is written. ``count``: how many elements a pack has; ``at``: which is computed; ``names``: the
    pack of a load or store; ``sums``: what a pack adds to a part."""

    packs: Packs
    count: str
    at: str
    names: dict[Instruction, str]
    sums: dict[str, str]

    @property
    def guard(self) -> str:
        """What is true of the elements that are there, if those behind the end are computed, too."""
        return f"if ({self.at} < {self.count}) " if self.packs.is_pure else ""
