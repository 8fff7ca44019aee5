"""Grad, jvp, vmap as passes."""
