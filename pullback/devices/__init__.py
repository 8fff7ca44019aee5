"""Arrays on devices outside compiled functions."""
