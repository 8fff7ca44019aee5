"""Describes a call to runtime/fastcall."""
