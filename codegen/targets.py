"""Describe processors, in a table by LLVM's name, for which code is optimised differently. It affects speed only, not results.

Machines on a hypervisor may report an older model than they are, or one that LLVM does not know. A processor whose features no
such model has is therefore looked up by its features (``core``).
"""

from __future__ import annotations

from collections.abc import Mapping

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Instruction


@dataclass(frozen=True, kw_only=True)
class Processor:
    """Timing of a processor with registers of 64 bytes.

    ``quotient`` and ``root``: by bits of the element, the cycles for which the divider is busy. ``others``: the number of
    other vector instructions that start per cycle. ``window``: the greatest number of instructions of a loop body for which
    iterations overlap; a quotient or root counts as many as its cycles. ``longest``: a body of this many instructions gets no
    further multiply-adds in place of a division: their latency is greater than the divider's.
    """

    quotient: Mapping[int, int]
    root: Mapping[int, int]
    others: int
    window: int
    longest: int = 80

    def cycles(self, i: Instruction) -> int:
        """Return the cycles for which an instruction keeps the divider busy, 0 if it is no quotient or root of floats."""
        of = {"div": self.quotient, "div_in_range": self.quotient, "sqrt": self.root}.get(i.op.name)
        return of.get(i.result.type.dtype.bits, 0) if of is not None else 0


WIDEST = 64
"""Bytes of the widest vector registers. There are 32 of them; there are 16 of all narrower ones."""
DEFAULT_L2_BYTES = 1 << 20
"""Bytes of L2 where the processor does not report its size."""


@dataclass(frozen=True)
class Target:
    """The machine that code is compiled for.

    ``vector_bytes``: of the widest vector register; ``has_fma``: whether it has fused multiply-add; ``cpu``: the processor's
    name in ``PROCESSORS``, or ""; ``cache``: the bytes of L2 per core.
    """

    vector_bytes: int
    has_fma: bool = True
    cpu: str = ""
    cache: int = DEFAULT_L2_BYTES


_QUOTIENT, _ROOT = {64: 16, 32: 10}, {64: 24, 32: 12}
_SERVERS_OF_INTEL = Processor(quotient=_QUOTIENT, root=_ROOT, others=2, window=40)
_CLIENTS_OF_INTEL = Processor(quotient=_QUOTIENT, root=_ROOT, others=1, window=40)
_NEWER_SERVERS_OF_INTEL = Processor(quotient=_QUOTIENT, root={64: 21, 32: 12}, others=2, window=36)
PROCESSORS = {
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake", "icelake-server"), _SERVERS_OF_INTEL),
    **dict.fromkeys(("cannonlake", "icelake-client", "rocketlake", "tigerlake"), _CLIENTS_OF_INTEL),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), _NEWER_SERVERS_OF_INTEL),
}
"""The processors with a slow divider. Servers are measured on an Ice Lake and the newer ones on one with AMX; clients have the
same divider, and one port for multiply-adds. The dividers of AMD take 4 to 10 cycles."""
_OF_AMD = "+sse4a"
_OF_INTEL = frozenset({"+avx512f", "+avx512dq", "+avx512vl"})
_NEWER = "+avx512fp16"


def core(cpu: str, features: str) -> str:
    """Return the name under which ``PROCESSORS`` lists a processor, from LLVM's name of it and its comma-separated features."""
    has = frozenset(features.split(","))
    if _OF_AMD in has or not has >= _OF_INTEL:
        return cpu
    is_newer = PROCESSORS.get(cpu) is _NEWER_SERVERS_OF_INTEL
    if _NEWER in has:
        return cpu if is_newer else "sapphirerapids"
    return cpu if cpu in PROCESSORS else "icelake-server"
