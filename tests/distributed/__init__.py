"""Tests of ``pb.distribute`` and of Dask's arrays."""
