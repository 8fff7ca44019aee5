"""Matrices packed once before a loop that multiplies by them."""
