"""The callable object that jit and the transforms return."""
