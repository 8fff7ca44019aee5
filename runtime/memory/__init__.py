"""Memory of results, kernel scratch and pools."""
