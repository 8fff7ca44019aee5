"""LLVM text to machine code, and its place in the process."""
