"""Compiled functions: the callables that transforms return."""
