"""Kernel cache."""
