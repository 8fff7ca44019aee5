"""The op table: every op, one record each, grouped by family. Importing it registers all."""

from pullback.ir.ops import array, control, elementwise, kernel, library, linalg, program

__all__ = ["array", "control", "elementwise", "kernel", "library", "linalg", "program"]
