"""The iterative solvers of scipy.sparse.linalg for dense matrices, which return the solution by a factorisation.

This satisfies any tolerance. A singular matrix raises LinAlgError.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pullback.tracer.arrays.arguments import xp
from pullback.tracer.arrays.make import as_traced, promote
from pullback.tracer.arrays.replacements import twin_of
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError


def _solver(name: str) -> None:
    def solve(
        A: Any, b: Any, x0: Any = None, *, rtol: Any = 1e-5, atol: Any = 0.0, maxiter: Any = None, M: Any = None,
        callback: Any = None, restart: Any = None, callback_type: Any = None,
    ) -> Any:  # fmt: skip
        if not isinstance(A, TracedArray | np.ndarray | list) or callback is not None or maxiter is not None:
            raise TraceError(
                f"scipy.sparse.linalg.{name} of traced arrays takes a dense matrix, and neither maxiter= nor callback=; "
                "write a fixed number of its steps as a loop"
            )
        matrix, right = promote(as_traced(A), as_traced(b))
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"expected square matrix, but got shape={matrix.shape}")
        if right.shape not in ((matrix.shape[0],), (matrix.shape[0], 1)):
            raise ValueError(f"shapes of A {matrix.shape} and b {right.shape} are incompatible")
        return xp.linalg.solve(matrix, xp.ravel(right)), 0

    twin_of(f"scipy.sparse.linalg.{name}")(solve)


for _name in ("cg", "bicg", "bicgstab", "cgs", "gmres", "minres"):
    _solver(_name)
