"""Kernel IR before scheduling: iteration spaces, elements, costs, the builder."""
