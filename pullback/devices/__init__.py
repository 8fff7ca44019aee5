"""Arrays on devices."""
