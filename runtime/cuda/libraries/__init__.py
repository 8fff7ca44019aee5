"""cuBLAS and cuSOLVER: which routine, with which sizes, by measurement."""
