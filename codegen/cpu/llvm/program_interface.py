"""Drivers: programs with control flow as one native function. What is known of one once it is written."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Extent
from pullback.ir.core.value import Value

MOST_ON_STACK = 8
"""So many numbers a buffer of fixed size may have that is on the stack."""

Failure = tuple[str, ...] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Driver:
    """``text``: a module that defines ``name``; ``slots``: its arguments, as those of a kernel, with ("host", k), ("poll",) and,
    of a driver that reads the clock, ("laps",).

    ``buffers``: what ("pointer", k), ("stride", k, axis) and ("scalar", k, dtype) are of; ``sizes``: the extents of ("size", k).
    ``limited``: the extents that BLAS and LAPACK are given. ``hosts``: the steps in Python. ``failures``: for each status from 1
    its error, message and place; None if Python raised.
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
    """Whether a program needs a driver."""
    return any(i.regions for i in program.instructions)


def on_stack(t: Any) -> bool:
    """Whether a driver has a buffer on its stack."""
    return all(isinstance(e, int) for e in t.shape) and numbers(t) <= MOST_ON_STACK


def numbers(t: Any) -> int:
    """How many real numbers a buffer of fixed size holds."""
    return math.prod(t.shape) * (2 if t.dtype.is_complex else 1)
