"""Tests of the public functions and of programs."""
