"""NumPy's names outside the names door: what ``pullback.numpy`` hands out.

Inside a trace a name means what the tracer makes of it, outside what NumPy makes of it. One table, the tracer's own, serves this
door and the user's ``numpy``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import current

EXTRA: dict[str, Callable[..., Any]] = {"row_stack": np.vstack}
"""Names that NumPy had and no longer has in all versions."""


class Door:
    """A function of NumPy: its twin inside a trace, itself outside."""

    __slots__ = ("__wrapped__",)

    def __init__(self, real: Any) -> None:
        self.__wrapped__ = real

    def _meant(self) -> Any:
        return meant(self.__wrapped__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._meant()(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self._meant()[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meant(), name)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        found: str | None = self.__wrapped__.__doc__
        return found

    def __repr__(self) -> str:
        return f"<pullback.numpy of {self.__wrapped__!r}>"


def meant(real: Any) -> Any:
    """What a library's object means here."""
    frame = current()
    return real if frame is None else frame.root.names.replacement(real, getattr(real, "__name__", ""))


def attribute(module: ModuleType, name: str) -> Any:
    """What ``pullback.numpy`` has under a name of a NumPy module. Raises AttributeError for a name that is not public there."""
    extra = EXTRA.get(name) if module is np else None
    if extra is None and (name.startswith("_") or not hasattr(module, name) or name == "random"):
        raise AttributeError(f"module 'pullback.{module.__name__}' has no attribute {name!r}")
    real = extra or getattr(module, name)
    if isinstance(real, type):
        return meant(real)
    return _DOORS.setdefault(id(real), Door(real)) if callable(real) or hasattr(real, "__getitem__") else real


_DOORS: dict[int, Door] = {}
