"""Strategies: ways to write a group kernel (registry)."""
