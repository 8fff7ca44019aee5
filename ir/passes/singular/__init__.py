"""Derivatives at singular points: roots, even powers, sums of logarithms and of functions of eigenvalues."""
