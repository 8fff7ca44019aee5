"""NumPy's functions and methods on traced arrays, one topic per file. Importing this package registers them."""

from pullback.tracer.functions.numpy import (
    assignment,
    bits,
    calculus,
    creation,
    dtype_views,
    einsum,
    elementwise,
    fft,
    histograms,
    index_tricks,
    indexing,
    insert_delete,
    joining,
    linalg,
    masks,
    nan_functions,
    nditer,
    pad,
    polynomials,
    products,
    put,
    quantiles,
    reductions,
    searchsorted,
    selection,
    shape,
    sorting,
    ufunc_methods,
    vectorize,
)

__all__ = [
    "assignment", "bits", "calculus", "creation", "dtype_views", "einsum", "elementwise", "fft", "histograms", "index_tricks",
    "indexing", "insert_delete", "joining", "linalg", "masks", "nan_functions", "nditer", "pad", "polynomials", "products", "put",
    "quantiles", "reductions", "searchsorted", "selection", "shape", "sorting", "ufunc_methods", "vectorize",
]  # fmt: skip
