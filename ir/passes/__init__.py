"""Passes over the IR, one file per pass."""
