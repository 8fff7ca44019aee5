"""How the files of ``pb.export`` begin, and which format they have."""

FORMAT = 1
"""The format of what a file says of its function, for the CPU and for devices."""
MAGIC = b"pullback device export 1\n"
"""How a file for a device begins."""
