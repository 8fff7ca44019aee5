"""Fork, locks, GC, counters."""
