"""Tests of stages, reports and profiles."""
