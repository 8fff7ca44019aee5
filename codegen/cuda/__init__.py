"""Stage emit for CUDA: entry."""
