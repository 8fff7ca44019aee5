"""Python's builtins and its modules math and bisect on traced numbers. Importing this package registers them."""

from pullback.tracer.functions.python import bisection, builtins, math, number_methods, sequences

__all__ = ["bisection", "builtins", "math", "number_methods", "sequences"]
