"""Process-wide state: fork, locks, garbage collection, counters, stack frames."""
