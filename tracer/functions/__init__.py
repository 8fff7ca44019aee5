"""Traced versions of functions of NumPy, SciPy and Python. Importing this package fills the tracer's tables."""

from pullback.tracer.arrays import numpy_errors as _numpy_errors
from pullback.tracer.functions import numpy, python, scipy

__all__ = ["numpy", "python", "scipy"]
del _numpy_errors
