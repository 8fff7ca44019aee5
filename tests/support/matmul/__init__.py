"""Programs and kernels of matrix products."""
