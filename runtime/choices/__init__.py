"""Choices among equivalent candidates, decided by measurement and kept on disk."""
