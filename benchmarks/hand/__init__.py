"""Loops written by hand, with the gradient derived by hand."""
