"""Gradients, tangents and batches as passes, and what a gradient keeps."""
