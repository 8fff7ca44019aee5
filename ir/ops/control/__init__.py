"""Ops with regions (branches, loops, custom rules), calls of the host, and markers."""

from pullback.ir.ops.control import custom, host, loops, markers, regions

__all__ = ["custom", "host", "loops", "markers", "regions"]
