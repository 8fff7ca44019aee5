"""The module heapq: its functions are operators of statements for lists that hold traced values, in traces that compile loops."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Callable
from typing import Any

from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.make import holds_traced
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.traced import has_rows
from pullback.tracer.syntax.table import PREFIX, operator_called


def _replacing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what replaces a function of heapq."""

    @functools.wraps(function)
    def call(heap: Any, *arguments: Any) -> Any:
        frame = current()
        if frame is None or not frame.root.rolls or not isinstance(heap, list):
            return function(heap, *arguments)
        if not has_rows(heap) and not holds_traced([list(heap), arguments]):
            return function(heap, *arguments)
        frame.root.is_rewritten = frame.root.has_lists = True
        return operator_called(PREFIX + function.__name__)(heap, *arguments)

    return call


for _function in (heapq.heappush, heapq.heappop, heapq.heapreplace, heapq.heappushpop, heapq.heapify):
    twin(_function)(_replacing(_function))
