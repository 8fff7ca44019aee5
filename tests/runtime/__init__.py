"""Tests of the runtime: compilation, processes, threads, memory."""
