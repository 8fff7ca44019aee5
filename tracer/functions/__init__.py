"""NumPy's functions and methods on traced arrays. Importing it fills the tracer's tables."""

from pullback.tracer.functions import (
    builtin,
    creation,
    distributions,
    einsum,
    elementwise,
    indexing,
    joining,
    mathematics,
    padding,
    picking,
    products,
    reductions,
    shape,
    vectorizing,
    writing,
)

__all__ = [
    "builtin",
    "creation",
    "distributions",
    "einsum",
    "elementwise",
    "indexing",
    "joining",
    "mathematics",
    "padding",
    "picking",
    "products",
    "reductions",
    "shape",
    "vectorizing",
    "writing",
]
