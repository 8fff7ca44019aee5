"""Kernels of ops that stand alone, a record each in a registry."""
