"""Kernels of ops that are not part of a group, one record each in a registry."""
