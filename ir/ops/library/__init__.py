"""Ops that libraries compute: BLAS, LAPACK, pocketfft, NumPy's sorts."""

from pullback.ir.ops.library import family, fourier, lapack, routines, sort

__all__ = ["family", "fourier", "lapack", "routines", "sort"]
