"""Record how a program was compiled, for ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from pullback.ir.core.records import dataclass
from pullback.programs.argument_types import ArgumentType
from pullback.programs.cache_info import CacheInfo
from pullback.runtime.process import counters
from pullback.runtime.program import launcher


@dataclass(frozen=True, kw_only=True)
class Record:
    """Hold the compilation of a program.

    Attributes
    ----------
    arguments : tuple of ArgumentType
        The arguments of the traced call.
    counts : CacheInfo
        The counts of kernels and templates.
    seconds : mapping of str to float
        The seconds of each stage.

    See Also
    --------
    pullback.cache_info : The counts of the process.

    Examples
    --------
    >>> f = pb.jit(lambda x: x * 0.25 - 17)
    >>> record = pb.inspection.Record(arguments=(), counts=f.cache_info(), seconds={"llvm": 0.02})
    >>> record.counts.compiles
    0
    """

    arguments: tuple[ArgumentType, ...]
    counts: CacheInfo
    seconds: Mapping[str, float]


class Recorder:
    """Counts the compile events of this thread in a ``with`` block, for a record and for the statistics of the function.

    Starts the compilation of the native launcher in the background.
    """

    def __init__(self, function: counters.Recorder | None = None) -> None:
        launcher.compile_in_background()
        self._function = function
        self._counts = counters.Recorder()
        self._within = ExitStack()

    def __enter__(self) -> Recorder:
        self._within.enter_context(counters.within(self._counts))
        return self

    def __exit__(self, *error: object) -> None:
        self._within.close()
        if self._function is not None:
            self._function.add(self._counts.snapshot())

    @property
    def counts(self) -> CacheInfo:
        """The counts of the block so far."""
        return CacheInfo.of(self._counts.snapshot())

    def record(self, arguments: tuple[ArgumentType, ...]) -> Record:
        """Return the record of the block."""
        counts = self.counts
        return Record(arguments=arguments, counts=counts, seconds=counts.seconds)
