"""Expose the attributes of a Python function that inspection tools read."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

from pullback.tracer import current, follow

WRAPPED = "_wrapped"
"""The attribute with the function."""


OF_TRACE = "_is_of_trace"
"""The attribute that is true of a compiled function that a traced one made."""


class FunctionLike:
    """Has the read-only attributes of the Python function ``__wrapped__``; reading them raises AttributeError for other
    callables."""

    __slots__ = ()

    __dict__: dict[str, Any]

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        """The function; in a trace, as it runs there."""
        function: Callable[..., Any] = self.__dict__[WRAPPED]
        return function if current() is None else follow(function)

    @__wrapped__.setter
    def __wrapped__(self, function: Callable[..., Any]) -> None:
        self.__dict__[WRAPPED] = function

    def __setattr__(self, name: str, value: Any) -> None:
        if self._may_change(name):
            object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if self._may_change(name):
            object.__delattr__(self, name)

    def _may_change(self, name: str) -> bool:
        """Return True; a traced function that changes an attribute of the user's is traced once more."""
        frame = current()
        if frame is not None and not name.startswith("_") and not self.__dict__.get(OF_TRACE):
            frame.root.names.attributes_change(self)
        return True

    @property
    def __code__(self) -> CodeType:
        return _inside(self, "__code__")

    @property
    def __defaults__(self) -> tuple[Any, ...] | None:
        return _inside(self, "__defaults__")

    @property
    def __kwdefaults__(self) -> dict[str, Any] | None:
        return _inside(self, "__kwdefaults__")

    @property
    def __closure__(self) -> tuple[Any, ...] | None:
        return _inside(self, "__closure__")

    @property
    def __globals__(self) -> dict[str, Any]:
        return _inside(self, "__globals__")

    @property
    def __builtins__(self) -> dict[str, Any]:
        return _inside(self, "__builtins__")


def _inside(function: FunctionLike, name: str) -> Any:
    return getattr(function.__dict__[WRAPPED], name)
