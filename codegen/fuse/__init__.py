"""Stage fuse: array IR to groups, each of which becomes one kernel."""
