"""A CUDA device: its context, stream, memory, modules and graphs."""
