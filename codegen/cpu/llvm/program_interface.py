"""Describe drivers: programs with control flow, compiled to one native function."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Extent
from pullback.ir.core.value import Value

MOST_ON_STACK = 8
"""Largest number of real numbers in a buffer of fixed size that a driver allocates on its stack."""

Failure = tuple[str, ...] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Driver:
    """An emitted driver.

    ``text``: a module that defines ``name``; ``slots``: its arguments, in the form of a kernel's, with ("host", k), ("poll",)
    and, in a driver that reads the clock, ("laps",).

    ``buffers``: the values that ("pointer", k), ("stride", k, axis) and ("scalar", k, dtype) refer to; ``sizes``: the extents
    of ("size", k). ``limited``: the extents passed to BLAS and LAPACK. ``hosts``: the steps in Python. ``failures``: for each
    status, counted from 1, its error, message and location; None if Python raised the error.
    """

    name: str
    text: str
    slots: tuple[tuple[Any, ...], ...]
    buffers: tuple[Value, ...]
    sizes: tuple[Extent, ...]
    hosts: tuple[Instruction, ...]
    failures: tuple[Failure, ...]
    limited: tuple[Extent, ...]


def has_control_flow(program: Function) -> bool:
    """Return whether a program needs a driver."""
    return any(i.regions for i in program.instructions)


def on_stack(t: Any) -> bool:
    """Return whether a driver allocates a buffer on its stack."""
    return all(isinstance(e, int) for e in t.shape) and real_count(t) <= MOST_ON_STACK


def real_count(t: Any) -> int:
    """Return how many real numbers a buffer of fixed size holds."""
    return math.prod(t.shape) * (2 if t.dtype.is_complex else 1)
