"""Short axes and pairs."""
