"""Tables of cases."""
