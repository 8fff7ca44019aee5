"""jit, grad, vmap and the other public transforms."""
