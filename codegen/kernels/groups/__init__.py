"""Strategies for writing the kernel of a group, one record each in a registry."""
