"""Result arrays, pool, scratch."""
