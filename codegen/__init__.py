"""Array IR to kernel and program IR to LLVM IR or CUDA C. Touches no device."""
