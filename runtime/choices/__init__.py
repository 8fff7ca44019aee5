"""Choices among candidates that measurements decide, kept on disk."""
