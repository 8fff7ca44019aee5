"""Transforms: what is applied to a function before it is compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.programs.donation import Donation
from pullback.tracer import Parameters, follow, gradient_call, parameters_of, rolling

Function = Callable[..., Any]
Argnums = int | tuple[int, ...]
Argnames = str | tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Transform:
    """A transform of a function; this class is "jit", which changes nothing.

    ``argnums`` and ``argnames`` select arguments, for transforms that have them. ``donate``: the arguments of the transformed
    function whose memory its results may reuse. ``dynamic``: its traces have symbolic sizes. ``tf32``: products of float32 may
    round their operands. ``rolls``: its traces have branches and loops that values decide. ``follows_choices``:
    where these cannot be joined, they are followed by guards. ``has_effects_of_trace``: what the function prints, it prints while
    it is traced. ``verify``: the number of calls of
    each program that are compared with plain Python.
    """

    name: str = "jit"
    argnums: Argnums | None = None
    argnames: Argnames | None = None
    has_aux: bool = False
    donate: Donation | None = None
    dynamic: bool = False
    tf32: bool = False
    rolls: bool = True
    follows_choices: bool = True
    has_effects_of_trace: bool = False
    verify: int = 0

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call the transformed function in the current trace."""
        with rolling(self.rolls, self.follows_choices, self.has_effects_of_trace):
            return follow(function)(*args, **kwargs)

    def parameters(self, function: Function, static: frozenset[str]) -> Parameters:
        """Return the parameters of the transformed function. Raises what ``Donation.check`` raises."""
        result = parameters_of(function, static)
        if self.donate is not None:
            self.donate.check(function, result)
        return result

    def after_self(self) -> Transform:
        """Return the transform for a function whose first argument is ``self``, which positions do not count."""
        return self if self.donate is None else replace(self, donate=self.donate.after_self())


@dataclass(frozen=True, kw_only=True)
class Derivative(Transform):
    """A derivative with respect to chosen arguments."""

    def after_self(self) -> Transform:
        if isinstance(self.argnums, tuple):
            argnums: Argnums | None = tuple(k + (k >= 0) for k in self.argnums)
        elif self.argnums is None:
            argnums = 1 if self.argnames is None else None
        else:
            argnums = self.argnums + (self.argnums >= 0)
        return replace(self, argnums=argnums)


@dataclass(frozen=True, kw_only=True)
class Gradient(Derivative):
    """The transforms "grad" and "value_and_grad"."""

    def apply(self, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        value, aux, gradients = gradient_call(
            function, args, kwargs, argnums=self.argnums, argnames=self.argnames, has_aux=self.has_aux
        )
        if self.name == "grad":
            return (gradients, aux) if self.has_aux else gradients
        return ((value, aux) if self.has_aux else value), gradients


def checked_argnums(argnums: Any) -> Argnums | None:
    """Return positions as an int, a tuple of ints or None. Raises TypeError for anything else."""
    is_sequence = isinstance(argnums, tuple | list)
    for k in argnums if is_sequence else [argnums]:
        if (k is not None or is_sequence) and (isinstance(k, bool) or not isinstance(k, int | np.integer)):
            raise TypeError(f"argnums is an int or a tuple of ints, not {argnums!r}")
    return tuple(map(int, argnums)) if is_sequence else None if argnums is None else int(argnums)


def checked_argnames(argnames: Any) -> Argnames | None:
    """Return names as a str, a tuple of strs or None. Raises TypeError for anything else."""
    if argnames is None or isinstance(argnames, str):
        return argnames
    words = tuple(argnames) if isinstance(argnames, Iterable) else (None,)
    if not all(isinstance(word, str) for word in words):
        raise TypeError(f"argnames is a name or a tuple of names, not {argnames!r}")
    return words
