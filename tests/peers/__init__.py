"""Tests that compare with other systems of automatic differentiation."""
