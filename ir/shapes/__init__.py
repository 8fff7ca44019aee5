"""Symbolic sizes, the guards on them, named extents, and formulas that relate sizes."""
