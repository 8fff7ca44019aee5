"""Objects that need no Python: headers, entries, processor dispatch, a plain matrix product."""
