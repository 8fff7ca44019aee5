"""Local rewrite rules and the engine that applies them."""
