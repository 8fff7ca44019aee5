"""Counts of kernels and templates, for people who wonder whether something was compiled again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pullback.runtime.process import counters


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """Counts of this process, or of the programs of one function in it.

    Every kernel that a program needed is one hit (it was in memory), disk hit (in the cache folder) or compile. A template
    is a program before its shapes: built by running every pass, loaded from the cache folder without any, instantiated by a trace
    that differs in shapes alone. ``seconds`` that each stage took, which do not count when two are compared.
    """

    hits: int
    disk_hits: int
    compiles: int
    templates_built: int
    templates_loaded: int
    templates_instantiated: int
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, taken: counters.Counters) -> CacheInfo:
        """What a reading of the counters says."""
        seconds = {stage: value for stage, value in taken.seconds.items() if value}
        return cls(**{event: getattr(taken, event) for event in counters.EVENTS}, seconds=seconds)

    def __str__(self) -> str:
        times = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in self.seconds.items())
        known, loaded = self.templates_instantiated, self.templates_loaded
        return (
            f"kernels    {self.hits:,} in memory, {self.disk_hits:,} on disk, {self.compiles:,} compiled\n"
            f"templates  {known:,} in memory, {loaded:,} on disk, {self.templates_built:,} built\n"
            f"seconds    {times or 'none'}"
        )


def cache_info() -> CacheInfo:
    """The counts of kernels and templates so far, of this process. Those of a function: ``f.cache_info()``."""
    return CacheInfo.of(counters.snapshot())
