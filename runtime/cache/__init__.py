"""The kernel cache on disk: keys, folders, entries, bounds, the stamp of the sources."""
