"""Small programs with Python's own loops and branches, as NumPy users write them; ``python -m tests.corpus`` prints a table."""
