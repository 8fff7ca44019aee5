"""scipy.special on traced arrays. Importing it registers its functions."""

from pullback.tracer.functions.scipy.special import orthogonal, special

__all__ = ["orthogonal", "special"]
