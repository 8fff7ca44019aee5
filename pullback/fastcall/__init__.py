"""Descriptions of calls for the native fast call in runtime/fastcall."""
