"""Regions, loops, custom rules, host calls, markers."""
