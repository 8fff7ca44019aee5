"""Loop transformations for the CPU: parallelise, split index sets, tile, stage, unroll-and-jam, vectorise, distribute."""
