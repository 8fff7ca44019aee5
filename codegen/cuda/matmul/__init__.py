"""Tiles and tensor cores."""
