"""scipy.linalg on traced arrays. Importing it registers its functions."""

from pullback.tracer.functions.scipy.linalg import (
    arguments,
    decompositions,
    matrix_functions,
    solve,
    special_matrices,
    structured_solve,
)

__all__ = ["arguments", "decompositions", "matrix_functions", "solve", "special_matrices", "structured_solve"]
