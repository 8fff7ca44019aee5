"""Symbolic sizes, the guards on them, extents by name, formulas for other sizes."""
