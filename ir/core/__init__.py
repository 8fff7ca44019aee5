"""Structure, op record, types, builder."""
