"""Distributions of scipy.stats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullback.tracer.errors import TraceError
from pullback.tracer.outside import RANDOM, Outside
from pullback.tracer.twins import kind_twin

if TYPE_CHECKING:
    from pullback.tracer.names import Names


class Distribution(Outside):
    """A distribution of scipy.stats, which cannot draw in a trace."""

    __slots__ = ()
    __class__ = property(lambda self: type(self._real))

    def _read(self, name: str) -> Any:
        if name in ("rvs", "random_state"):
            raise TraceError(f"a random draw (scipy.stats, .{name}): {RANDOM}")
        return self._names.replacement(getattr(self._real, name), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Distribution:
        return Distribution(self._real(*args, **kwargs), self._names)


_MODULE = "scipy.stats._distn_infrastructure"


@kind_twin(f"{_MODULE}.rv_generic", f"{_MODULE}.rv_frozen")
def distribution(value: Any, names: Names) -> Distribution:
    return Distribution(value, names)
