"""Rewrites for derivatives at singular points: roots, even powers, sums of exponentials, spectra."""
