"""Tests of the ops: values, derivatives, text."""
