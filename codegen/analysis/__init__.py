"""Questions both targets ask."""
