"""Numpy, a topic a file."""
