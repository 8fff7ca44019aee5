"""Array rewrites before grouping."""
