"""Describe drivers: programs with control flow, compiled to one native function."""

from __future__ import annotations

import math
from typing import Any

from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.program import BindExtent
from pullback.ir.shapes.extents import by_value_in

MOST_ON_STACK = 8
"""Largest number of real numbers in a buffer of fixed size that a driver allocates on its stack."""

Failure = tuple[str, ...] | None


@dataclass(frozen=True, eq=False, kw_only=True)
class Driver:
    """An emitted driver.

    ``text``: a module that defines ``name``; ``slots``: its arguments, in the form of a kernel's, with ("host", k), ("poll",),
    ("laps",) in a driver that reads the clock, and ("create",): a function that allocates a result whose extents the program
    computes, and takes ("creation",), the state of the call.

    ``buffers``: the values that ("pointer", k), ("stride", k, axis) and ("scalar", k, dtype) refer to; ``sizes``: the extents
    of ("size", k). ``limited``: the extents passed to BLAS and LAPACK. ``hosts``: the steps in Python. ``failures``: for each
    status, counted from 1, its error, message and location; None if Python raised the error. ``created``: the results that
    ("create",) allocates.
    """

    name: str
    text: str
    slots: tuple[tuple[Any, ...], ...]
    buffers: tuple[Value, ...]
    sizes: tuple[Extent, ...]
    hosts: tuple[Instruction, ...]
    failures: tuple[Failure, ...]
    limited: tuple[Extent, ...]
    created: tuple[Value, ...] = ()


def has_control_flow(program: Function) -> bool:
    """Return whether a program needs a driver."""
    return any(i.regions or isinstance(i.op, BindExtent) for i in program.instructions)


def on_stack(t: Any) -> bool:
    """Return whether a driver allocates a buffer on its stack."""
    return all(isinstance(e, int) for e in t.shape) and real_count(t) <= MOST_ON_STACK


def allocates(t: Any) -> bool:
    """Return whether a driver allocates a buffer itself: on its stack, or because its extents are by value."""
    return on_stack(t) or bool(by_value_in(t.shape))


def real_count(t: Any) -> int:
    """Return how many real numbers a buffer of fixed size holds."""
    return math.prod(t.shape) * (2 if t.dtype.is_complex else 1)
