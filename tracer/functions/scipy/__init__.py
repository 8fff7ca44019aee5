"""SciPy's functions on traced arrays, a file or folder for each subpackage. Importing this package registers them."""

from pullback.tracer.functions.scipy import (
    fft,
    fftpack,
    interpolate,
    linalg,
    ndimage,
    signal,
    sparse_linalg,
    spatial,
    special,
    stats,
)

__all__ = ["fft", "fftpack", "interpolate", "linalg", "ndimage", "signal", "sparse_linalg", "spatial", "special", "stats"]
