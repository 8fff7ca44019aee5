"""Analyses of kernels and programs, shared by both targets."""
