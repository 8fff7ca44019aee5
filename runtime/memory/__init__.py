"""Memory of results, kernels and pools."""
