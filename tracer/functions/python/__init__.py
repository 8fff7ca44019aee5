"""Builtins, math."""
