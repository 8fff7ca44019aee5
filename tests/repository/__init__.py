"""Tests of the documentation, the examples, the benchmarks and the layout of the sources."""
