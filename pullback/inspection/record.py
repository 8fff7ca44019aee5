"""What is remembered of the making of a compiled program, for ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pullback.counts import CacheInfo, cache_info
from pullback.inspection.call import ArgumentType
from pullback.runtime import counters
from pullback.runtime.launcher import launcher


@dataclass(frozen=True, kw_only=True)
class Record:
    """``arguments`` of the call that was traced; ``made``: the kernels and templates that its program took, ``seconds`` what each
    stage took."""

    arguments: tuple[ArgumentType, ...]
    made: CacheInfo
    seconds: Mapping[str, float]


class Recorder:
    """Reads the counts when it is made and when it is asked for the record. The launcher, which is of no program, comes first."""

    def __init__(self) -> None:
        launcher()
        self._counts, self._seconds = cache_info(), counters.snapshot()

    def record(self, arguments: tuple[ArgumentType, ...]) -> Record:
        """What happened in between."""
        counts, taken = cache_info(), counters.snapshot() - self._seconds
        names = CacheInfo.__dataclass_fields__
        made = CacheInfo(**{name: getattr(counts, name) - getattr(self._counts, name) for name in names})
        return Record(arguments=arguments, made=made, seconds={k: v for k, v in taken.seconds.items() if v})
