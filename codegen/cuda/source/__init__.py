"""CUDA C text."""
