"""Counts of kernels and templates, for people who wonder whether something was compiled again."""

from __future__ import annotations

from dataclasses import dataclass

from pullback.pipeline import template_counts
from pullback.runtime import counters


@dataclass(frozen=True, kw_only=True)
class CacheInfo:
    """Counts of this process.

    Every kernel that a program needed is one hit (it was in memory), disk hit (in the cache folder) or compile. A template
    is a program before its shapes: built by running every pass, loaded from the cache folder without any, instantiated by a trace
    that differs in shapes alone.
    """

    hits: int
    disk_hits: int
    compiles: int
    templates_built: int
    templates_loaded: int
    templates_instantiated: int


def cache_info() -> CacheInfo:
    """The counts of kernels and templates so far."""
    kernels, templates = counters.snapshot(), template_counts()
    return CacheInfo(
        hits=kernels.hits,
        disk_hits=kernels.disk_hits,
        compiles=kernels.compiles,
        templates_built=templates.built,
        templates_loaded=templates.loaded,
        templates_instantiated=templates.instantiated,
    )
