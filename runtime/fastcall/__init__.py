"""The warm call as native code."""
