"""Programs on a CUDA device: execution plans, their planner, calls."""
