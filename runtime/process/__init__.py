"""What concerns the whole process: fork, locks, garbage collection, counters, stack."""
