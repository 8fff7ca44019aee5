"""Plans and calls."""
