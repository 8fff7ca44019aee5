"""The parts of a program on a CUDA device: pieces, each one graph, and between them what the host decides.

A loop of few steps is written out in a piece. One of many is turned by the host: its turns are pieces that find their rows by a
position on the device, so that those of every turn are the same. Buffers that take turns make bodies take turns: the state of a
loop says which buffers its references are, and there is a body for each state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.ir.core.structure import Instruction
from pullback.ir.ops.control.host import Host
from pullback.runtime.cuda.arrays.device_array import spread
from pullback.runtime.cuda.program.steps import Piece, Place

if TYPE_CHECKING:
    from pullback.runtime.cuda.program.call import Call


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A number or bool that decides: in a buffer, or, without a place, the argument at ``position``."""

    place: Place | None
    dtype: np.dtype[np.generic]
    position: int = -1

    def read(self, call: Call) -> int:
        """What it is. Waits for the device where it is there. Raises what a check says that failed before."""
        if self.place is None:
            return int(call.arguments[self.position])
        return int(call.number(self.place, self.dtype))


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

    def run(self, call: Call) -> None:
        count = self.count if isinstance(self.count, int) else self.count.read(call)
        call.put(self.position, count - 1 if self.is_reverse else 0)
        states, state, done = self.states, 0, 0
        while done < count:
            if self.several is not None and not state and count - done >= self.several[0]:
                done += self.several[0]
                call.run(self.several[1])
                continue
            done += 1
            call.run(states.bodies[state])
            state = states.following[state]
        if not isinstance(self.count, int):
            call.run(states.endings[state])


@dataclass(frozen=True, slots=True, eq=False)
class Until:
    """A loop as long as what a turn leaves in ``goes_on``, by state, is true. The parts of a turn end with the next condition."""

    position: Place
    first: list[Part]
    goes_on: list[Held]
    states: States

    def run(self, call: Call) -> None:
        call.put(self.position, 0)
        call.run(self.first)
        states, state = self.states, 0
        while self.goes_on[state].read(call):
            call.run(states.bodies[state])
            state = states.following[state]
        call.run(states.endings[state])


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """The parts of one region or another, by a number."""

    index: Held
    regions: list[list[Part]]

    def run(self, call: Call) -> None:
        call.run(self.regions[self.index.read(call)])


@dataclass(frozen=True, slots=True, eq=False)
class OnHost:
    """What the host does on copies: a call of Python, or a launch without CUDA C, by the CPU. ``places``: of its operands, None
    for scalars, which are the arguments at ``positions``."""

    instruction: Instruction
    places: tuple[Place | None, ...]
    positions: tuple[int, ...]

    def run(self, call: Call) -> None:
        i = self.instruction
        shapes = [call.executable.shape(v, call.sizes) for v in i.operands]
        values: list[Any] = []
        pairs = []
        for v, place, position, shape in zip(i.operands, self.places, self.positions, shapes, strict=True):
            if place is None:
                values.append(call.arguments[position])
                continue
            dtype, strides = v.type.dtype.numpy, call.strides(v, place)
            if strides is None:
                values.append(np.empty(shape, dtype))
                pairs.append((place, values[-1]))
            else:
                # What lies between its elements comes too.
                first, whole, view = spread(shape, dtype, strides)
                values.append(view)
                pairs.append(((place[0], place[1] + first), whole))
        call.check()
        call.download(pairs)
        changed: Sequence[int]
        if isinstance(i.op, Host):
            i.op.run(values, i.params)
            changed = range(len(values) - i.op.outputs(i.params), len(values))
        else:
            changed = call.executable.written[i.params["kernel"]]
            results = iter(call.executable.on_host(i).run(list(values), call.sizes))
            values = [a if shape or p is None else next(results) for a, p, shape in zip(values, self.places, shapes, strict=True)]
        for k in changed:
            place = self.places[k]
            if place is not None:
                call.upload(np.ascontiguousarray(values[k]).reshape(shapes[k]), place)


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
