"""The public transforms: jit, grad, vmap and others."""
