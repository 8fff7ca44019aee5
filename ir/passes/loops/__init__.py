"""Motion of code into, out of and behind loops."""
