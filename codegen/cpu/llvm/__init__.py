"""Stage emit: LLVM IR text."""
