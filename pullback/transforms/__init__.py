"""Jit, grad, vmap, ."""
