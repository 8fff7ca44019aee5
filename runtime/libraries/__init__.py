"""Symbols of native libraries: BLAS, LAPACK, libm, NumPy's sorts."""
