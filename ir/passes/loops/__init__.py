"""Motion into and out of loops."""
