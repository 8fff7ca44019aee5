"""The sweep over derivatives: its rows, exact references, bounds and errors."""
