"""Scipy.signal."""
