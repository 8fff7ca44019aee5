"""The op table: every op of the array vocabulary, one record each, grouped by family. Importing it registers all."""

from pullback.ir.ops import (
    banded,
    complexes,
    contract,
    control,
    create,
    custom,
    effect,
    eigen,
    elementwise,
    exponential,
    factors,
    fourier,
    host,
    index,
    kernel,
    lapack,
    library,
    linalg,
    orthogonal,
    program,
    reduce,
    reindex,
    roots,
    scan,
    schur,
    sort,
    special,
    spectral,
)

__all__ = [
    "banded", "complexes", "contract", "control", "create", "custom", "effect", "eigen", "elementwise", "exponential",
    "factors", "fourier", "host", "index", "kernel", "lapack", "library", "linalg", "orthogonal", "program", "reduce",
    "reindex", "roots", "scan", "schur", "sort", "special", "spectral",
]  # fmt: skip
