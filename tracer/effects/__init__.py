"""Effects of a traced function on the outside: what it writes. Importing this package registers the functions' twins.

A program performs its effects at each call, in program order, as host calls without results (``emission.py``). Each runs below
frames with the files, lines and globals of the user's functions (``user_frames.py``), so that tracebacks are those of Python.
"""

from pullback.tracer.effects import clocks, logs, printing, progress, streams, warning_calls

__all__ = ["clocks", "logs", "printing", "progress", "streams", "warning_calls"]
