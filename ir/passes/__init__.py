"""Passes over the array IR, from traced functions to optimised ones; the pipeline says their order."""
