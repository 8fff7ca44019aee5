"""CuBLAS, cuSOLVER."""
