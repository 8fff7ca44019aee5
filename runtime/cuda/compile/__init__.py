"""CUDA C to cubins: NVRTC, nvcc, disassembly."""
