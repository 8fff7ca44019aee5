"""Whose code, which line, what to write instead."""
