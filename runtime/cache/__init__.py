"""The kernel cache on disk: keys, folders, entries, size limits and the stamp of the sources."""
