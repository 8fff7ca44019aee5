"""Passes over the array IR, from traced to optimised functions; ``pipeline`` lists them in order."""
