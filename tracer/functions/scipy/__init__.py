"""Scipy, a subpackage a file or folder."""
