"""Counts of kernels and templates, which show whether something was compiled again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pullback.runtime.process import counters


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """Counts of this process, or of the programs of one function in it.

    Every kernel that a program needed is one hit (in memory), disk hit (in the cache folder) or compile. A template is a
    program for all shapes: built by running every pass, loaded from the cache folder without running any, or instantiated by a
    trace that differs only in shapes. ``seconds``: the time of each stage, which comparisons ignore.
    """

    hits: int
    disk_hits: int
    compiles: int
    templates_built: int
    templates_loaded: int
    templates_instantiated: int
    seconds: Mapping[str, float] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, counts: counters.Counters) -> CacheInfo:
        """Convert a reading of the counters."""
        seconds = {stage: value for stage, value in counts.seconds.items() if value}
        return cls(**{event: getattr(counts, event) for event in counters.EVENTS}, seconds=seconds)

    def __str__(self) -> str:
        times = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in self.seconds.items())
        instantiated, loaded = self.templates_instantiated, self.templates_loaded
        return (
            f"kernels    {self.hits:,} in memory, {self.disk_hits:,} on disk, {self.compiles:,} compiled\n"
            f"templates  {instantiated:,} in memory, {loaded:,} on disk, {self.templates_built:,} built\n"
            f"seconds    {times or 'none'}"
        )


def cache_info() -> CacheInfo:
    """Return the counts of kernels and templates of this process so far. For those of one function use ``f.cache_info()``."""
    return CacheInfo.of(counters.snapshot())
