"""Programs with an oracle and a formula for the gradient."""
