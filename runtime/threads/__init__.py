"""The worker pool, and its interplay with the threads of libraries."""
