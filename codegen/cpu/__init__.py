"""Stage schedule for the CPU: the list of passes."""
