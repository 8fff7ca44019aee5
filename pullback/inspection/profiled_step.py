"""One step of a profile: its work, its time and the machine limit that applies."""

from __future__ import annotations

from typing import Literal

from pullback.inspection.cost import KernelCost, coverage_text
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Loc
from pullback.programs.report import places

Part = Literal["forward", "backward", "both"]
PARTS: tuple[Part, ...] = ("forward", "backward", "both")


@dataclass(frozen=True, kw_only=True)
class ProfiledStep:
    """Hold the time of one step of a program: the launches of one launch instruction, or a step in Python.

    Attributes
    ----------
    name : str
        The name of the step.
    part : str
        The forward or backward part of a gradient, or "both" for a kernel that computes some of each.
    seconds : float
        The time of all runs of the step in one call.
    start : float or None
        Seconds from the start of the call; None in control flow, where the runs of several steps are interleaved.
    runs : float
        The number of runs in one call.
    cost : KernelCost or None
        The work of the step; None for a step in Python.
    lines : tuple of Loc
        The user's lines.
    ops : tuple of str
        The array ops.
    share : float
        The fraction of the machine's limit that was reached: the least time that the work can take by the ``limit``, over the
        measured time. It exceeds 1 if the data was in a faster cache than in the program by which the limit was measured.
    limit : str
        The limit that sets the least time, "memory" or "compute".
    launch : int or None
        Its position among the kernels of the cost report; None for a step in Python, or one that packs an operand of products.
    flops_per_second : float
        Operations per second.
    bytes_per_second : float
        Bytes per second.
    words : str
        The step in words.

    See Also
    --------
    Profile : Holds the steps of a call.

    Examples
    --------
    >>> report = pb.jit(lambda x: np.sum(np.sin(x))).profile(np.ones(10_000))
    >>> report.steps[0].part
    'forward'
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
    launch: int | None = None

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
