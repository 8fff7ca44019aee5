"""The functions of NumPy, SciPy and Python that a trace knows. Importing it fills the tracer's tables."""

from pullback.tracer.functions import numpy, python, scipy

__all__ = ["numpy", "python", "scipy"]
