"""Transforms: what is done to a function before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.tracer import follow, gradient_call

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]
Argnames = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Transform:
    """What is done to a function: "jit" nothing, "grad" and "value_and_grad" its gradient."""

    name: str
    argnums: Argnums | None = None
    argnames: Argnames | None = None
    has_aux: bool = False

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the transformed function in the current trace."""
        if self.name == "jit":
            return follow(function)(*args, **kwargs)
        value, aux, gradients = gradient_call(
            function, args, kwargs, argnums=self.argnums, argnames=self.argnames, has_aux=self.has_aux
        )
        if self.name == "grad":
            return (gradients, aux) if self.has_aux else gradients
        return ((value, aux) if self.has_aux else value), gradients

    def after_self(self) -> Transform:
        """The transform of a function whose first argument is ``self``, which positions do not count."""
        if self.name == "jit":
            return self
        if isinstance(self.argnums, tuple):
            argnums: Argnums | None = tuple(k + (k >= 0) for k in self.argnums)
        elif self.argnums is None:
            argnums = 1 if self.argnames is None else None
        else:
            argnums = self.argnums + (self.argnums >= 0)
        return Transform(name=self.name, argnums=argnums, argnames=self.argnames, has_aux=self.has_aux)
