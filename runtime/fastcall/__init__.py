"""The fast call as native code: checks of arguments, captures and results without Python."""
