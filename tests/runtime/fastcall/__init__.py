"""Tests of native calls."""
