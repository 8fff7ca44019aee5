"""Transforms inside a trace."""
