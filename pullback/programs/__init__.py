"""Compiled programs of transformed functions: how they are selected, built, called and described."""
