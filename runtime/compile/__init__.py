"""LLVM text to loaded machine code."""
