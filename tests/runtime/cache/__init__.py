"""Tests of the kernel cache."""
