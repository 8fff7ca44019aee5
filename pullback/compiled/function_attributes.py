"""Expose the attributes of a Python function that inspection tools read."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any


class FunctionLike:
    """Has the read-only attributes of the Python function ``__wrapped__``; reading them raises AttributeError for other
    callables."""

    __slots__ = ()

    __wrapped__: Callable[..., Any]

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
    return getattr(function.__wrapped__, name)
