"""Analysis of what a function does along one axis of its arguments, the rows, and its split by blocks of rows."""
