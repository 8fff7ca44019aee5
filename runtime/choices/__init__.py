"""Measured choices."""
