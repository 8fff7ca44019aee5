"""Kernels of ops that stand alone (registry)."""
