"""Transforms inside a trace: grad, vmap, loops, branches, callbacks."""
