"""pullback on a GPU beside other systems and the device's limits: `python -m benchmarks.gpu`."""
