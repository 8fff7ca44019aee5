"""The user's code: whose it is, which line, what to write instead."""
