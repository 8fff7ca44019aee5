"""Stage emit for CUDA devices."""
