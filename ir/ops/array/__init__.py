"""Reindex, reduce, scan, index, create, contract, complex."""
