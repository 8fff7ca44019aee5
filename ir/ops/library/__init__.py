"""Ops done by BLAS, LAPACK, pocketfft, NumPy sorts."""
