"""Mapping loops to grid, block, lane."""
