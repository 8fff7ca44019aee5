"""The CUDA driver through PyCUDA, and its errors."""
