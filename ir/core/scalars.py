"""Conversions of constants to Python numbers; symbolic numbers of a trace stay symbolic."""

from __future__ import annotations

from typing import Any


class SymbolicScalar:
    """The base class of numbers that stand for a formula of extents, such as ``pullback.ir.shapes.symbolic.Size``."""

    __slots__ = ()

    def converted(self, kind: type) -> Any:
        """Return the number as an int, a float or a complex number, still symbolic."""
        raise NotImplementedError


def as_int(x: Any) -> int:
    """Return a number as a Python int, or as a symbolic integer."""
    converted: int = x.converted(int) if isinstance(x, SymbolicScalar) else int(x)
    return converted


def as_float(x: Any) -> float:
    """Return a number as a Python float, or as a symbolic float."""
    converted: float = x.converted(float) if isinstance(x, SymbolicScalar) else float(x)
    return converted


def as_complex(x: Any) -> complex:
    """Return a number as a Python complex, or as a symbolic complex number."""
    converted: complex = x.converted(complex) if isinstance(x, SymbolicScalar) else complex(x)
    return converted
