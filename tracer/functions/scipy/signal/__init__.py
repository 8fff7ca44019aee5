"""scipy.signal on traced arrays. Importing it registers its functions."""

from pullback.tracer.functions.scipy.signal import fft_convolve, filters, spectral

__all__ = ["fft_convolve", "filters", "spectral"]
