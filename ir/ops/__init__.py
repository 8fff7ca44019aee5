"""The op table: every op of the array vocabulary, one record each, grouped by family. Importing it registers all."""

from pullback.ir.ops import (
    complexes,
    contract,
    control,
    create,
    effect,
    elementwise,
    exponential,
    host,
    index,
    kernel,
    library,
    linalg,
    program,
    reduce,
    reindex,
    scan,
    special,
    spectral,
)

__all__ = [
    "complexes", "contract", "control", "create", "effect", "elementwise", "exponential", "host", "index", "kernel", "library",
    "linalg", "program", "reduce", "reindex", "scan", "special", "spectral",
]  # fmt: skip
