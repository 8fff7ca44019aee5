"""Stage fuse: array IR to groups."""
