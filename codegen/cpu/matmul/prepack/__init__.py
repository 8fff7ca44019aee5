"""Weights packed before loops."""
