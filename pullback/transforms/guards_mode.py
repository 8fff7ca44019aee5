"""Implement ``pb.jit(guards=True)``: follow Python branches on traced values, and guard their outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.compiled.transform import Function, Transform
from pullback.ir.core.records import dataclass
from pullback.tracer import follow, following, rolling


@dataclass(frozen=True, kw_only=True)
class Guarded(Transform):
    """The transform "jit" that follows branches on traced values."""

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with rolling(False, False, self.has_effects_of_trace), following():
            return follow(function)(*args, **kwargs)
