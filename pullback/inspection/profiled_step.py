"""One step of a profile: its work, its time and the machine limit that applies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pullback.inspection.cost import KernelCost, coverage_text
from pullback.ir.core.structure import Loc
from pullback.programs.report import places

Part = Literal["forward", "backward", "both"]
PARTS: tuple[Part, ...] = ("forward", "backward", "both")


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """One step of the program: the launches of one launch instruction, or a step in Python, whose ``cost`` is None.

    ``seconds``: the time of all ``runs`` of the step in one call. ``start``: seconds from the start of the call; None in
    control flow, where the runs of several steps are interleaved. ``part``: the forward or backward part of a gradient, or
    "both" for a kernel that computes some of each. ``share``: the fraction of the machine's limit that was reached: the least
    time that the work can take by the ``limit``, "memory" or "compute", over the measured time. It exceeds 1 if the data was
    in a faster cache than in the program by which the limit was measured.
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
        """Additions, multiplications, divisions and square roots per second, without functions."""
        return self.cost.flops / self.seconds if self.cost is not None and self.seconds else 0.0

    @property
    def bytes_per_second(self) -> float:
        """Bytes read and written per second, each counted once."""
        return self.cost.bytes / self.seconds if self.cost is not None and self.seconds else 0.0

    @property
    def words(self) -> str:
        """Its lines and ops as text."""
        if self.cost is not None:
            return coverage_text(self.cost)
        return ": ".join(word for word in (places(self.lines), ", ".join(self.ops)) if word)
