"""Programs as they stand, compared with plain Python: values, types, errors, later calls with other data, gradients."""
