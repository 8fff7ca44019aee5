"""numpy.linalg on traced arrays. Importing it registers its functions."""

from pullback.tracer.functions.numpy.linalg import decompositions, norms, solve

__all__ = ["decompositions", "norms", "solve"]
