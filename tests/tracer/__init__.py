"""Tests of the tracer: what a function reads, writes and refuses."""
