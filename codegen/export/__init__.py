"""Exported objects that need no Python: C headers, entry points, processor detection, a fallback matrix product."""
