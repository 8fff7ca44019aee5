"""Short axes and pairs: parts of an axis become arrays of their own."""
