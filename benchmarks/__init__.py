"""Compares pullback with other systems, with loops written by hand and with the limits of the machine: `python -m benchmarks`."""
