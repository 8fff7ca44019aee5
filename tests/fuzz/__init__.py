"""Random programs and the tests that run some of them; ``python -m tests.fuzz`` runs many."""
