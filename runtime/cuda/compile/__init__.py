"""NVRTC, nvcc, cubin."""
