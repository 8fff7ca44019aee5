"""Rewrites that know mathematics."""
