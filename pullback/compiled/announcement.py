"""What the logger and the progress line say of the compile of a call."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pullback.ir.core.lazy_imports import later
from pullback.programs import logger, progress
from pullback.programs.call import Call
from pullback.programs.compile_record import Recorder
from pullback.programs.report import counted

if TYPE_CHECKING:
    from pullback.inspection import reports
else:
    reports = later("pullback.inspection.reports")


@contextmanager
def announced(call: Callable[[], Call], title: str, recorder: Recorder) -> Iterator[None]:
    """Log, at INFO, that a call is compiled in the block, why, and then how long that took; show it as progress. ``title``: the
    function; ``recorder``: what counts its kernels."""
    is_logged = logger.is_on("info")
    start = time.perf_counter()
    if is_logged:
        examined = call()
        logger.log("info", "compiling %s(%s): %s", title, ", ".join(map(str, examined.arguments)), _reason(examined))
    with progress.shown(title):
        yield
    if is_logged:
        logger.log("info", "compiled %s in %.2f s: %s", title, time.perf_counter() - start, _kernels(recorder))


def _reason(call: Call) -> str:
    """Return why a call is compiled."""
    status, changes = reports.why_traced(call)
    return f"{status}: {', '.join(map(str, changes))}" if changes else status


def _kernels(recorder: Recorder) -> str:
    """Return how many kernels a compile needed, and where they come from."""
    counts = recorder.counts
    if counts.templates_instantiated and not counts.compiles:
        return "the program of other sizes"
    if counts.templates_loaded:
        return "from the cache folder"
    origins = [(counts.compiles, "compiled"), (counts.disk_hits, "from the cache folder"), (counts.hits, "in memory")]
    parts = [f"{count} {origin}" for count, origin in origins if count]
    return ", ".join([counted(sum(count for count, _ in origins), "kernel"), *parts])
