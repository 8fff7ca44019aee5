"""What code is made differently for, by LLVM's name of the processor: a written table. It decides nothing but the time.

Machines on a hypervisor may say that they are an older model than they are, or one that LLVM does not know. So a processor whose
features no such model has is looked up by them (``core``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.ir.core.structure import Instruction


@dataclass(frozen=True, kw_only=True)
class Processor:
    """For registers of 64 bytes and elements of so many bits: the cycles in which the divider takes nothing else, of a
    ``quotient`` and of a ``root``. ``others``: how many other instructions on such registers start in a cycle. ``window``: of
    bodies of so many instructions it works on several iterations at once; a quotient or root stands for as many as its cycles.
    ``longest``: a body of so many is not made longer by multiply-adds in place of one. It waits for its own results, which they
    give later than the divider."""

    quotient: Mapping[int, int]
    root: Mapping[int, int]
    others: int
    window: int
    longest: int = 80

    def cycles(self, i: Instruction) -> int:
        """Of the divider for an instruction, 0 if it is no quotient or root of floats."""
        of = {"div": self.quotient, "div_in_range": self.quotient, "sqrt": self.root}.get(i.op.name)
        return of.get(i.result.type.dtype.bits, 0) if of is not None else 0


WIDEST = 64
"""The bytes of the widest vector registers. Of these there are 32, of others 16."""
SECOND_CACHE = 1 << 20
"""The bytes of the second cache where that is not known."""


@dataclass(frozen=True)
class Target:
    """What code is made for: the bytes of the widest vector register, whether it multiplies and adds in one, the processor's
    name in ``PROCESSORS``, if it is there, and the bytes of the second cache, of a core's own."""

    vector_bytes: int
    has_fma: bool = True
    cpu: str = ""
    cache: int = SECOND_CACHE


_QUOTIENT, _ROOT = {64: 16, 32: 10}, {64: 24, 32: 12}
_SERVERS_OF_INTEL = Processor(quotient=_QUOTIENT, root=_ROOT, others=2, window=40)
_CLIENTS_OF_INTEL = Processor(quotient=_QUOTIENT, root=_ROOT, others=1, window=40)
_NEWER_SERVERS_OF_INTEL = Processor(quotient=_QUOTIENT, root={64: 21, 32: 12}, others=2, window=36)
PROCESSORS = {
    **dict.fromkeys(("skylake-avx512", "cascadelake", "cooperlake", "icelake-server"), _SERVERS_OF_INTEL),
    **dict.fromkeys(("cannonlake", "icelake-client", "rocketlake", "tigerlake"), _CLIENTS_OF_INTEL),
    **dict.fromkeys(("sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d"), _NEWER_SERVERS_OF_INTEL),
}
"""Those whose divider is slow: servers as measured on an Ice Lake and, the newer ones, on one with AMX; clients have the same
divider, and multiply and add at one port. Those of AMD take 4 to 10 cycles."""
_OF_AMD = "+sse4a"
_OF_INTEL = frozenset({"+avx512f", "+avx512dq", "+avx512vl"})
_NEWER = "+avx512fp16"


def core(cpu: str, features: str) -> str:
    """The name by which the table has a processor, of LLVM's name of it and its features, comma-separated."""
    has = frozenset(features.split(","))
    if _OF_AMD in has or not has >= _OF_INTEL:
        return cpu
    is_newer = PROCESSORS.get(cpu) is _NEWER_SERVERS_OF_INTEL
    if _NEWER in has:
        return cpu if is_newer else "sapphirerapids"
    return cpu if cpu in PROCESSORS else "icelake-server"
