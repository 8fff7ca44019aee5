"""The callable object."""
