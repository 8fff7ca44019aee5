"""Strategies for the kernel of a group, a record each in a registry."""
