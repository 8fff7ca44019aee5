"""Generators of random programs, and tests that run some of them; ``python -m tests.fuzz`` runs many."""
