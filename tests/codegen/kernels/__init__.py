"""Tests of the kernels that groups of ops become."""
