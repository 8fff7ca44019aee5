"""Compiled signatures, templates, pipeline."""
