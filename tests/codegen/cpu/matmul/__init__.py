"""Tests of matrix products on the CPU."""
