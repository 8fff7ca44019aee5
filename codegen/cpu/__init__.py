"""Stage schedule for the CPU: the order of the loop transformations."""
