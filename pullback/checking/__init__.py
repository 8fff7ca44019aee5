"""Check=True, debug=True."""
