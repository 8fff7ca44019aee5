"""Elementary functions as kernel IR."""
