"""NumPy's functions and methods on traced arrays. Importing it fills the tracer's tables."""

from pullback.tracer.arrays import numpy_errors as words
from pullback.tracer.functions.numpy import (
    assignment as writing,
)
from pullback.tracer.functions.numpy import (
    bits,
    calculus,
    creation,
    einsum,
    elementwise,
    histograms,
    indexing,
    joining,
    linalg,
    norms,
    polynomials,
    products,
    quantiles,
    reductions,
    shape,
    sorting,
)
from pullback.tracer.functions.numpy import (
    dtype_views as reinterpreting,
)
from pullback.tracer.functions.numpy import (
    fft as fourier,
)
from pullback.tracer.functions.numpy import (
    index_tricks as concatenators,
)
from pullback.tracer.functions.numpy import (
    insert_delete as places,
)
from pullback.tracer.functions.numpy import (
    linalg_decompositions as spectral,
)
from pullback.tracer.functions.numpy import (
    masks as selecting,
)
from pullback.tracer.functions.numpy import (
    nan_functions as nans,
)
from pullback.tracer.functions.numpy import (
    nditer as iterating,
)
from pullback.tracer.functions.numpy import (
    pad as padding,
)
from pullback.tracer.functions.numpy import (
    put as putting,
)
from pullback.tracer.functions.numpy import (
    searchsorted as searching,
)
from pullback.tracer.functions.numpy import (
    selection as picking,
)
from pullback.tracer.functions.numpy import (
    ufunc_methods as folds,
)
from pullback.tracer.functions.numpy import (
    vectorize as vectorizing,
)
from pullback.tracer.functions.python import builtins as builtin
from pullback.tracer.functions.python import math as mathematics
from pullback.tracer.functions.scipy import (
    fft as fourier_scipy,
)
from pullback.tracer.functions.scipy import (
    fftpack,
)
from pullback.tracer.functions.scipy import (
    interpolate as interpolation,
)
from pullback.tracer.functions.scipy import (
    ndimage as images,
)
from pullback.tracer.functions.scipy import (
    sparse_linalg as krylov,
)
from pullback.tracer.functions.scipy import (
    spatial as distances,
)
from pullback.tracer.functions.scipy.linalg import (
    decompositions as spectral_scipy,
)
from pullback.tracer.functions.scipy.linalg import (
    matrix_functions,
)
from pullback.tracer.functions.scipy.linalg import (
    solve as linalg_scipy,
)
from pullback.tracer.functions.scipy.linalg import (
    special_matrices as matrix_shapes,
)
from pullback.tracer.functions.scipy.linalg import (
    structured_solve as equations,
)
from pullback.tracer.functions.scipy.signal import fft_convolve as convolving
from pullback.tracer.functions.scipy.signal import filters as signal
from pullback.tracer.functions.scipy.signal import spectral as spectra
from pullback.tracer.functions.scipy.special import orthogonal as orders
from pullback.tracer.functions.scipy.special import special
from pullback.tracer.functions.scipy.stats import continuous, discrete, distributions, multivariate, statistics
from pullback.tracer.functions.scipy.stats import kde as density

__all__ = [
    "bits",
    "builtin",
    "calculus",
    "concatenators",
    "continuous",
    "convolving",
    "creation",
    "density",
    "discrete",
    "distances",
    "distributions",
    "einsum",
    "elementwise",
    "images",
    "equations",
    "fftpack",
    "folds",
    "fourier",
    "fourier_scipy",
    "histograms",
    "indexing",
    "interpolation",
    "iterating",
    "joining",
    "krylov",
    "linalg",
    "linalg_scipy",
    "mathematics",
    "matrix_functions",
    "matrix_shapes",
    "multivariate",
    "nans",
    "norms",
    "orders",
    "padding",
    "picking",
    "places",
    "polynomials",
    "products",
    "quantiles",
    "putting",
    "reductions",
    "reinterpreting",
    "searching",
    "selecting",
    "shape",
    "signal",
    "sorting",
    "special",
    "spectra",
    "spectral",
    "spectral_scipy",
    "statistics",
    "vectorizing",
    "words",
    "writing",
]
