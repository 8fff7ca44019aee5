"""Stage schedule for CUDA: matrix products to tiles, loops to grid, block and thread."""
