"""Symbolic sizes, guards on them, abstraction, formulas."""
