"""Elementary functions as kernel IR, and what a target lacks spelled out."""
