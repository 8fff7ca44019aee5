"""The parts of a program on a CUDA device: pieces, each one graph, and between them what the host decides.

A loop of few steps is written out in a piece. One of many is turned by the host: its turns are pieces that find their rows by a
position on the device, so that those of every turn are the same. Buffers that take turns make bodies take turns: the state of a
loop says which buffers its references are, and there is a body for each state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pullback.ir.core.structure import Instruction
from pullback.runtime.cuda.program.steps import Piece, Place


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A number or bool that decides: in a buffer, or, without a place, the argument at ``position``."""

    place: Place | None
    dtype: np.dtype[np.generic]
    position: int = -1


@dataclass(slots=True, eq=False)
class States:
    """The bodies of a loop by state, the state that each leaves, and what brings buffers to where the first state has them."""

    bodies: list[list[Part]] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    endings: list[list[Part]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """A loop of ``count`` turns. ``several``: the parts of so many turns at once, from the first state to the first state."""

    count: int | Held
    position: Place
    is_reverse: bool
    states: States
    several: tuple[int, list[Part]] | None


@dataclass(frozen=True, slots=True, eq=False)
class Until:
    """A loop as long as what a turn leaves in ``goes_on``, by state, is true. The parts of a turn end with the next condition."""

    position: Place
    first: list[Part]
    goes_on: list[Held]
    states: States


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The parts of one region or another, by a number."""

    index: Held
    regions: list[list[Part]]


@dataclass(frozen=True, slots=True, eq=False)
class OnHost:
    """What the host does on copies: a call of Python, or a launch without CUDA C, by the CPU. ``places``: of its operands, None
    for scalars, which are the arguments at ``positions``."""

    instruction: Instruction
    places: tuple[Place | None, ...]
    positions: tuple[int, ...]


Part = Piece | Turns | Until | Choice | OnHost


def pieces_of(parts: Sequence[Part]) -> list[Piece]:
    """All pieces, those of loops and branches too."""
    found: list[Piece] = []
    for part in parts:
        match part:
            case Piece():
                found.append(part)
            case Turns():
                inner = [*part.states.bodies, *part.states.endings, *([part.several[1]] if part.several else [])]
                found += [piece for each in inner for piece in pieces_of(each)]
            case Until():
                found += [p for each in (part.first, *part.states.bodies, *part.states.endings) for p in pieces_of(each)]
            case Choice():
                found += [piece for region in part.regions for piece in pieces_of(region)]
    return found


__all__ = ["Choice", "Held", "OnHost", "Part", "Piece", "States", "Turns", "Until", "pieces_of"]
