"""Stage lower: fused array IR to a program that launches kernels."""
