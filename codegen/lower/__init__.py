"""Stage lower: programs."""
