"""Complex values as pairs of real ones."""
