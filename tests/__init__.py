"""Tests: folders as those of the sources, and what they share in ``support``, ``tables`` and ``golden``."""
