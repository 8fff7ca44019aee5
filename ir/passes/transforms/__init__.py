"""Transforms: gradients, tangents and batching as passes, and the choice of residuals."""
