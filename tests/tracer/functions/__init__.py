"""Tests of the functions of Python, NumPy and SciPy that the tracer replaces."""
