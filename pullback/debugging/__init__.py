"""Checks of gradients, searches for values that are not finite, printing from programs."""
