"""Matrix products in CUDA C: tiles and tensor cores."""
