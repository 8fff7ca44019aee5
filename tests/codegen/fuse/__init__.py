"""Tests of fusion and of the rewrites before it."""
