"""Python's builtins and its module math on traced numbers. Importing this package registers them."""

from pullback.tracer.functions.python import builtins, math, sequences

__all__ = ["builtins", "math", "sequences"]
