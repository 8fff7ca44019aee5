"""The op table: one record for each op, grouped by family. Importing this package registers all ops."""

from pullback.ir.ops import array, control, elementwise, kernel, library, linalg, program

__all__ = ["array", "control", "elementwise", "kernel", "library", "linalg", "program"]
