"""The worker pool, and libraries' threads beside it."""
