"""The CUDA driver by PyCUDA, and its errors."""
