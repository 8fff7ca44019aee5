"""Python's builtins and its module math on traced numbers. Importing it registers them."""

from pullback.tracer.functions.python import builtins, math

__all__ = ["builtins", "math"]
