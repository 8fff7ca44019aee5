"""pullback on a GPU, compared with other systems and the device's limits: `python -m benchmarks.gpu`."""
