"""Counts of kernels and templates, which show whether something was compiled again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from pullback.ir.core.records import dataclass
from pullback.runtime.process import counters


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """Hold the counts of what was compiled, in this process or for the programs of one function in it.

    Every kernel that a program needed is one hit, disk hit or compile. A template is a program for all shapes.

    Attributes
    ----------
    hits : int
        Kernels that were in memory.
    disk_hits : int
        Kernels read from the cache folder.
    compiles : int
        Kernels compiled.
    templates_built : int
        Templates built by running every pass.
    templates_loaded : int
        Templates loaded from the cache folder, without running any pass.
    templates_instantiated : int
        Templates instantiated by a trace that differs only in shapes.
    seconds : mapping of str to float
        The time of each stage in seconds; comparisons ignore it.

    See Also
    --------
    cache_info : The counts of this process.

    Examples
    --------
    >>> f = pb.jit(lambda x: np.sum(x * x))
    >>> f(np.ones(3)), f(np.ones(4))
    (np.float64(3.0), np.float64(4.0))
    >>> counts = f.cache_info()
    >>> counts.templates_built + counts.templates_loaded + counts.templates_instantiated
    2
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
    """Return the counts of kernels and templates of this process so far.

    Returns
    -------
    CacheInfo
        The counts. Those of one function are returned by its method ``f.cache_info()``.

    See Also
    --------
    CacheInfo : The fields.

    Examples
    --------
    >>> before = pb.cache_info()
    >>> pb.jit(lambda x: x + 1)(np.ones(3))
    array([2., 2., 2.])
    >>> pb.cache_info() == before
    False
    """
    return CacheInfo.of(counters.snapshot())
