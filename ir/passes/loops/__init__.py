"""Code motion into, out of and past loops."""
