"""The structure of the IR: types, SSA values, op records, the builder, and the environment variables."""
