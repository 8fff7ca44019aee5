"""Device arrays outside compiled functions."""
