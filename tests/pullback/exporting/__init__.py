"""Tests of exported programs."""
