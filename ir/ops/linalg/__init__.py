"""Matrix functions and factorisations, with their derivatives."""

from pullback.ir.ops.linalg import (
    banded,
    eig,
    eigh_svd,
    factorizations,
    matrix_exponential,
    matrix_roots,
    qr,
    schur,
    spectral_gaps,
    spectral_sums,
)

__all__ = [
    "banded", "eig", "eigh_svd", "factorizations", "matrix_exponential", "matrix_roots", "qr", "schur", "spectral_gaps",
    "spectral_sums",
]  # fmt: skip
