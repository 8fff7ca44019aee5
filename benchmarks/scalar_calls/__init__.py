"""Calls whose arguments are Python's numbers."""
