"""Copying, taking loops apart, cse, dce, activity."""
