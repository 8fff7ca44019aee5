"""Structure of the IR, types, op record, builder, environment variables."""
