"""Debugging aids: gradient checks, searches for values that are not finite, and printing from compiled programs."""
