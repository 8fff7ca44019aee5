"""Devices for tests of CUDA: a GPU, the stand-in on the host, and stand-ins for its libraries."""
