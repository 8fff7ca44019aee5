"""The user's code: ownership of code and objects, source positions, and the texts of errors."""
