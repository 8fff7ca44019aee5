"""The names of ``pullback.numpy``, which resolve without a followed function's globals.

Inside a trace a name resolves to its twin, outside to NumPy's object. The same tables serve these names and the user's
``numpy``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import current

EXTRA: dict[str, Callable[..., Any]] = {"row_stack": np.vstack}
"""Names that not all versions of NumPy have."""


class NumpyName:
    """A function of NumPy: its twin inside a trace, the function itself outside."""

    __slots__ = ("__wrapped__",)

    def __init__(self, real: Any) -> None:
        self.__wrapped__ = real

    def _meant(self) -> Any:
        return current_meaning(self.__wrapped__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._meant()(*args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self._meant()[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._meant(), name)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        text: str | None = self.__wrapped__.__doc__
        return text

    def __repr__(self) -> str:
        return f"<pullback.numpy of {self.__wrapped__!r}>"


def current_meaning(real: Any) -> Any:
    """Return a library's object, inside a trace its replacement."""
    frame = current()
    return real if frame is None else frame.root.names.replacement(real, getattr(real, "__name__", ""))


def attribute(module: ModuleType, name: str) -> Any:
    """Return the attribute ``name`` of ``pullback.numpy`` for a NumPy module. Raises AttributeError for a name not public
    there."""
    extra = EXTRA.get(name) if module is np else None
    if extra is None and (name.startswith("_") or not hasattr(module, name) or name == "random"):
        raise AttributeError(f"module 'pullback.{module.__name__}' has no attribute {name!r}")
    real = extra or getattr(module, name)
    if isinstance(real, type):
        return current_meaning(real)
    return _NUMPY_NAMES.setdefault(id(real), NumpyName(real)) if callable(real) or hasattr(real, "__getitem__") else real


_NUMPY_NAMES: dict[int, NumpyName] = {}
