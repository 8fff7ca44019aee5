"""Local rules and their engine."""
