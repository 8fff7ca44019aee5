"""Programs beside other systems of automatic differentiation."""
