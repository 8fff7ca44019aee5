"""What code is made differently for, by LLVM's name of the processor: a written table. It decides nothing but the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.ir.structure import Instruction


@dataclass(frozen=True, kw_only=True)
class Processor:
    """For registers of 64 bytes and elements of so many bits: the cycles in which the divider takes nothing else, of a
    ``quotient`` and of a ``root``. ``others``: how many other instructions on such registers start in a cycle. ``window``: of
    bodies of so many instructions it works on several iterations at once; a quotient or root stands for as many as its cycles."""

    quotient: Mapping[int, int]
    root: Mapping[int, int]
    others: int
    window: int

    def cycles(self, i: Instruction) -> int:
        """Of the divider for an instruction, 0 if it is no quotient or root of floats."""
        of = {"div": self.quotient, "sqrt": self.root}.get(i.op.name)
        return of.get(i.result.type.dtype.bits, 0) if of is not None else 0


_SERVERS_OF_INTEL = (
    "skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids", "emeraldrapids", "graniterapids",
    "graniterapids-d",
)  # fmt: skip
_SERVER_OF_INTEL = Processor(quotient={64: 16, 32: 10}, root={64: 24, 32: 12}, others=2, window=40)
PROCESSORS = dict.fromkeys(_SERVERS_OF_INTEL, _SERVER_OF_INTEL)
"""Those whose divider is slow, measured on an Ice Lake; those of AMD take 4 to 10 cycles."""
