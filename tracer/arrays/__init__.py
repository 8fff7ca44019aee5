"""Traced arrays, their frame, and how NumPy's protocols reach them."""
