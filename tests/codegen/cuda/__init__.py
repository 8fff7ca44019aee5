"""Tests of the CUDA C that is emitted."""
