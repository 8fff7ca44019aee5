"""Functions computed by blocks of rows: in this process, or by the workers of a Dask cluster, with the same bits."""
