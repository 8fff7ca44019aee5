"""PyCUDA and errors."""
