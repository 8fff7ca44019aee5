"""Stage emit for the CPU: LLVM IR text of kernels and programs."""
