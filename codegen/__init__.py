"""Array IR to programs and kernels, then to LLVM IR or CUDA C. Uses no device."""
