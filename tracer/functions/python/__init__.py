"""Python's builtins and its modules math, cmath, bisect and heapq on traced numbers. Importing this package registers them."""

from pullback.tracer.functions.python import bisection, builtins, cmath, heaps, math, number_methods, sequences

__all__ = ["bisection", "builtins", "cmath", "heaps", "math", "number_methods", "sequences"]
