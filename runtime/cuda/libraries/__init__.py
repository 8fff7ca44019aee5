"""cuBLAS and cuSOLVER: their routines, the arguments of each, and the measured choice between them and generated kernels."""
