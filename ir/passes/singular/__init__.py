"""Derivatives at singular points: roots, signs, strong zeros."""
