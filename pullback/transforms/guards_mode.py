"""``pb.jit(guards=True)``: Python branches on traced values are followed, and guarded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.compiled.transform import Function, Transform
from pullback.tracer import follow, following


@dataclass(frozen=True, kw_only=True)
class Guarded(Transform):
    """A function as it is, whose branches on traced values are followed."""

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        with following():
            return follow(function)(*args, **kwargs)
