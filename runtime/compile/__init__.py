"""LLVM text to machine code."""
