"""Programs on a device: execution plans, their planner, calls."""
