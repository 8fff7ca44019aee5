"""Loop transformations: parallelise, split, tile, stage, unroll and jam, distribute."""
