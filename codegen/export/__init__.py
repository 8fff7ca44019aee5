"""Objects without Python."""
