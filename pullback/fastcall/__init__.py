"""Descriptions of calls for the native entry in runtime/fastcall."""
