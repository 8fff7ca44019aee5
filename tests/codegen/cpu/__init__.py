"""Tests of the code for the CPU: loops, functions, memory."""
