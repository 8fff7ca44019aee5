"""CUDA at run time."""
