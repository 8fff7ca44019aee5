"""The format of the files that ``pb.export`` writes."""

FORMAT = 1
"""Version of the manifest in a file, for the CPU and for devices."""
MAGIC = b"pullback device export 1\n"
"""First bytes of a file for a device."""
