"""The op table: every op of the array vocabulary, one record each, grouped by family. Importing it registers all."""

from pullback.ir.ops import program
from pullback.ir.ops.array import complex as complexes
from pullback.ir.ops.array import contract, create, index, reduce, reindex, scan
from pullback.ir.ops.control import custom, host, loops
from pullback.ir.ops.control import markers as effect
from pullback.ir.ops.control import regions as control
from pullback.ir.ops.elementwise import bessel, elementwise, hypergeometric
from pullback.ir.ops.elementwise import gamma_beta_erf as special
from pullback.ir.ops.kernel import float_parts as parts
from pullback.ir.ops.kernel import functions as shared
from pullback.ir.ops.kernel import kernel
from pullback.ir.ops.kernel import matmul as product
from pullback.ir.ops.library import family as linalg
from pullback.ir.ops.library import fourier, lapack, sort
from pullback.ir.ops.library import routines as library
from pullback.ir.ops.linalg import (
    banded,
    schur,
)
from pullback.ir.ops.linalg import (
    eig as eigen,
)
from pullback.ir.ops.linalg import (
    eigh_svd as spectral,
)
from pullback.ir.ops.linalg import (
    factorizations as factors,
)
from pullback.ir.ops.linalg import (
    matrix_exponential as exponential,
)
from pullback.ir.ops.linalg import (
    matrix_roots as roots,
)
from pullback.ir.ops.linalg import (
    qr as orthogonal,
)
from pullback.ir.ops.linalg import (
    spectral_sums as matrix_functions,
)

__all__ = [
    "banded", "bessel", "complexes", "contract", "control", "create", "custom", "effect", "eigen", "elementwise",
    "exponential", "factors", "fourier", "host", "hypergeometric", "index", "kernel", "lapack", "library", "linalg", "loops",
    "orthogonal", "parts", "product", "program", "reduce", "reindex", "roots", "scan", "schur", "shared", "sort", "special",
    "matrix_functions",
    "spectral",
]  # fmt: skip
