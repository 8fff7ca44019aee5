"""SciPy's functions on traced arrays, a subpackage a file or folder. Importing it registers them."""

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
