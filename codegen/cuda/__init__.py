"""Stages schedule and emit for CUDA devices."""
