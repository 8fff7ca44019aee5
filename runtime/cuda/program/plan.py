"""The parts of a planned program on a CUDA device: segments, each one graph, and between them the decisions of the host.

A loop of few steps is unrolled into a segment. A longer one is iterated by the host: its iterations are segments that compute
their row offsets from a position on the device, so that every iteration runs the same segments. If buffers are exchanged
between iterations, so are the bodies: the state of a loop says which buffers its references stand for, and there is one body
per state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction
from pullback.runtime.cuda.program.steps import Location, Segment


@dataclass(frozen=True, slots=True, eq=False)
class HostScalar:
    """A scalar that the host reads to decide: in a buffer, or, if ``location`` is None, the argument at ``position``."""

    location: Location | None
    dtype: np.dtype[np.generic]
    position: int = -1


@dataclass(slots=True, eq=False)
class LoopStates:
    """The bodies of a loop by state, the state that follows each, and the parts that copy the buffers to their locations in
    the first state."""

    bodies: list[list[Part]] = field(default_factory=list)
    following: list[int] = field(default_factory=list)
    endings: list[list[Part]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class CountedLoop:
    """A loop of ``count`` iterations. ``unrolled``: the number and the parts of iterations that lead from the first state back
    to it."""

    count: int | HostScalar
    position: Location
    is_reverse: bool
    states: LoopStates
    unrolled: tuple[int, list[Part]] | None


@dataclass(frozen=True, slots=True, eq=False)
class WhileLoop:
    """A loop that continues while ``conditions``, by state, is true after an iteration. The parts of an iteration end with the
    next condition."""

    position: Location
    first: list[Part]
    conditions: list[HostScalar]
    states: LoopStates


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """The parts of alternative regions, selected by ``index``."""

    index: HostScalar
    regions: list[list[Part]]


@dataclass(frozen=True, slots=True, eq=False)
class HostStep:
    """A step that the host runs on copies: a host call, or a launch without CUDA C. ``locations``: those of its operands, None
    for scalars, which are the arguments at ``positions``."""

    instruction: Instruction
    locations: tuple[Location | None, ...]
    positions: tuple[int, ...]


Part = Segment | CountedLoop | WhileLoop | Conditional | HostStep


def segments_of(parts: Sequence[Part]) -> list[Segment]:
    """Return all segments, those of loops and branches included."""
    result: list[Segment] = []
    for part in parts:
        match part:
            case Segment():
                result.append(part)
            case CountedLoop():
                inner = [*part.states.bodies, *part.states.endings, *([part.unrolled[1]] if part.unrolled else [])]
                result += [piece for each in inner for piece in segments_of(each)]
            case WhileLoop():
                result += [p for each in (part.first, *part.states.bodies, *part.states.endings) for p in segments_of(each)]
            case Conditional():
                result += [piece for region in part.regions for piece in segments_of(region)]
    return result


__all__ = ["Conditional", "HostScalar", "HostStep", "Part", "Segment", "LoopStates", "CountedLoop", "WhileLoop", "segments_of"]
