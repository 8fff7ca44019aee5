"""Tests of transforms, control flow, custom rules and callbacks."""
