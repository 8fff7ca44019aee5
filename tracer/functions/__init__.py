"""NumPy's functions and methods on traced arrays. Importing it fills the tracer's tables."""

from pullback.tracer.functions import (
    creation,
    einsum,
    elementwise,
    indexing,
    joining,
    padding,
    picking,
    products,
    reductions,
    shape,
    writing,
)

__all__ = [
    "creation",
    "einsum",
    "elementwise",
    "indexing",
    "joining",
    "padding",
    "picking",
    "products",
    "reductions",
    "shape",
    "writing",
]
