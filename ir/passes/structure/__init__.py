"""Rewrites of short axes and pairs: parts of an axis become separate arrays."""
