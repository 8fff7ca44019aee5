"""CUDA C text of kernels: statements, launches, scans, sorts, device functions."""
