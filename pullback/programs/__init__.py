"""Compiled signatures of a function, templates, and the pipeline that makes programs."""
