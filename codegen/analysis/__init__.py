"""Analyses of kernels and programs that both targets use."""
