"""Plain Python loops as they stand, in pullback, Numba, JAX and Python: ``python -m benchmarks.python_loops``."""
