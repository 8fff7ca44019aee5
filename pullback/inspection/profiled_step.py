"""One step of a profile: what ran, how long, and against which limit of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pullback.inspection.cost import KernelCost, covered
from pullback.ir.core.structure import Loc
from pullback.programs.report import places

Part = Literal["forward", "backward", "both"]
PARTS: tuple[Part, ...] = ("forward", "backward", "both")


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """One step of the program: the launches of one place, or a step in Python, whose ``cost`` is None.

    ``seconds``: of all its runs in one call, of which there are ``runs``. ``start``: seconds from the start of the call; None in
    control flow, where runs of several steps take turns. ``part``: of a gradient the forward part, the backward part, or "both",
    a kernel that computes some of each. ``share``: of what the machine gives, how much was used: the least time that the work may
    take by the ``limit`` that is "memory" or "compute", over the time that it took. Above 1, its data was in a nearer cache than
    that of the program by which the limit was measured.
    """

    name: str
    part: Part
    seconds: float
    start: float | None
    runs: float
    cost: KernelCost | None
    lines: tuple[Loc, ...]
    ops: tuple[str, ...]
    share: float = 0.0
    limit: str = ""

    @property
    def flops_per_second(self) -> float:
        """Additions, multiplications, divisions and square roots a second; functions are not among them."""
        return self.cost.flops / self.seconds if self.cost is not None and self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes read and written a second, each once."""
        return self.cost.bytes / self.seconds if self.cost is not None and self.seconds else 0.0

    @property
    def words(self) -> str:
        """Its lines and ops."""
        if self.cost is not None:
            return covered(self.cost)
        return ": ".join(word for word in (places(self.lines), ", ".join(self.ops)) if word)
