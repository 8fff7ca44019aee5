"""Executables and launching."""
