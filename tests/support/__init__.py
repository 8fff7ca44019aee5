"""Helpers that tests share: comparisons, programs, ways to run on each target."""
