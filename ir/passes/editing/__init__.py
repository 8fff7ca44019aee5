"""Utilities that passes share: replay, views of loops, cse, dce, activity analysis."""
