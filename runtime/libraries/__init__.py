"""Native symbols."""
