"""Ahead-of-time compilation: ``pb.export`` and ``pb.load``."""
