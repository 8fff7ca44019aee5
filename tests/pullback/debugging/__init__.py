"""Tests of ``check_grad``, ``find_nan`` and printing."""
