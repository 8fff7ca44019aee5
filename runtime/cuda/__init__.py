"""CUDA at run time: driver, devices, arrays, compilers, libraries, programs."""
