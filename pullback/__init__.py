"""Compiles plain NumPy functions and their gradients to machine code."""

from pullback.api import CacheInfo, cache_info, grad, jit, value_and_grad
from pullback.tracer import TraceError

__all__ = ["CacheInfo", "TraceError", "__version__", "cache_info", "grad", "jit", "value_and_grad"]

__version__ = "0.1.0"
