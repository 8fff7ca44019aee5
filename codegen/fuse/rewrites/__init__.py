"""Rewrites of the array IR before groups are formed."""
