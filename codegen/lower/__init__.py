"""Stage lower: groups and single ops to a program of kernel launches."""
