"""Algebraic rewrites: symmetry, norms, shift invariance, sums of products."""
