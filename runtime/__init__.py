"""Text to machine code to call: devices, programs, memory, kernel cache."""
