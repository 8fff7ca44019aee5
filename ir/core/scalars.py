"""Conversions of constants to Python's numbers, of plain ones and of those that a trace knows as formulas."""

from __future__ import annotations

from typing import Any


class SymbolicScalar:
    """The base of numbers that stand for a formula of extents, such as ``pullback.ir.shapes.symbolic.Size``."""

    __slots__ = ()

    def converted(self, kind: type) -> Any:
        """Return the number as an int, a float or a complex that still stands for its formula."""
        raise NotImplementedError


def as_int(x: Any) -> int:
    """Return a number as a Python int, or as one that stands for a formula."""
    number: int = x.converted(int) if isinstance(x, SymbolicScalar) else int(x)
    return number


def as_float(x: Any) -> float:
    """Return a number as a Python float, or as one that stands for a formula."""
    number: float = x.converted(float) if isinstance(x, SymbolicScalar) else float(x)
    return number


def as_complex(x: Any) -> complex:
    """Return a number as a Python complex, or as one that stands for a formula."""
    number: complex = x.converted(complex) if isinstance(x, SymbolicScalar) else complex(x)
    return number
