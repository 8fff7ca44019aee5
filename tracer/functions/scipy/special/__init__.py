"""Scipy.special."""
