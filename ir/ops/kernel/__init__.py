"""Kernel vocabulary."""
