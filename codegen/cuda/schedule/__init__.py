"""Mapping of loops to grid, block and lane."""
