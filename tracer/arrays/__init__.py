"""Traced arrays and their frame."""
