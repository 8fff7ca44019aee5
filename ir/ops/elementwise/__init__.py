"""Scalar functions and their semantics."""
