"""Tests of the modes that check a call."""
