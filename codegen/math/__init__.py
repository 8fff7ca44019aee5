"""Elementary functions as kernel IR, and expansions of ops that a target lacks."""
