"""Rewrites that know mathematics: symmetry, norms, shift invariance, sums of products."""
