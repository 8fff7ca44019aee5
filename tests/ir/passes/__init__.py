"""Tests of the passes over the IR."""
