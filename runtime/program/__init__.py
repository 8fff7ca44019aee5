"""Executables on the CPU: buffers, launching, interruption, serialisation."""
