"""What every unscheduled kernel is built with."""
