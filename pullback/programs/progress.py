"""What is being compiled, on a terminal or in a notebook: one line, after a second, that is erased when the compile ends.

A thread writes it, so that it also appears while LLVM or the tracer runs. It shows the stage, the number of operations and the
user's line that most of them are of. Programs whose standard error is a file or a pipe write nothing, and so do those that log.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pullback.ir import Function
from pullback.ir.core.environment import LOG
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.structure import walk
from pullback.programs import logger
from pullback.programs.report import counted
from pullback.runtime.process import counters
from pullback.tracer.user_code.ownership import user_frame

if TYPE_CHECKING:
    import shutil
else:
    shutil = later("shutil")  # it imports the modules of compressed archives

DELAY = 1.0
"""Seconds after which a compile is shown: shorter ones are not worth reading about."""
INTERVAL = 0.2
"""Seconds between two updates: quick enough for the eye, and few enough that counting the operations takes little time."""
NARROWEST = 40
"""Fewest columns of a terminal that are believed; some tell 0."""


class Compile:
    """A compile that is under way in a thread. ``functions``: those that it works on now."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.thread = threading.get_ident()
        self.start = time.monotonic()
        self.functions: Sequence[Function] = ()
        self.ended = threading.Event()


_compiles: dict[int, Compile] = {}
"""The compiles under way, by thread."""


@contextmanager
def shown(title: str) -> Iterator[None]:
    """Show the compile of a function while the block runs, on a terminal or in a notebook. A compile within another one of the
    same thread is a part of that one."""
    stream = sys.stderr
    if threading.get_ident() in _compiles or not is_watched(stream):
        yield
        return
    compile_ = _compiles[threading.get_ident()] = Compile(title)
    painter = threading.Thread(target=_paint, args=(compile_, stream), name="pullback-progress", daemon=True)
    painter.start()
    try:
        yield
    finally:
        del _compiles[compile_.thread]
        compile_.ended.set()
        painter.join()


def working_on(*functions: Function) -> None:
    """Note which functions the compile of this thread works on from now on."""
    compile_ = _compiles.get(threading.get_ident())
    if compile_ is not None:
        compile_.functions = functions


def is_watched(stream: TextIO) -> bool:
    """Return whether someone reads a stream as it is written: a terminal, or a notebook's. Programs that log do not use it."""
    if LOG.read() or logger.is_on("info"):
        return False
    is_notebook = type(stream).__module__.partition(".")[0] == "ipykernel"
    try:
        return is_notebook or stream.isatty()
    except (AttributeError, ValueError):  # None under pythonw, or a closed file
        return False


def _paint(compile_: Compile, stream: TextIO) -> None:
    """Write the line of a compile until it ends, and erase it."""
    width, delay = 0, DELAY
    while not compile_.ended.wait(delay):
        text = line_of(compile_, max(shutil.get_terminal_size().columns, NARROWEST) - 1)
        stream.write(f"\r{text:<{width}}")
        stream.flush()
        width, delay = len(text), INTERVAL
    if width:
        stream.write(f"\r{'':<{width}}\r")
        stream.flush()


def line_of(compile_: Compile, width: int) -> str:
    """Return the text for a compile, of at most ``width`` characters."""
    parts = [counters.stage_of(compile_.thread) or "trace"]
    operations = [i for function in compile_.functions for i in walk(function.body)]
    if operations:
        parts.append(counted(len(operations), "operation"))
        lines = Counter((i.loc.file, i.loc.line) for i in operations if i.loc.file)
        if lines:
            ((file, line), count), *_ = lines.most_common(1)
            parts.append(f"{100 * count // len(operations)} % at {Path(file).name}:{line}")
    elif current := _current_line(compile_.thread):
        parts.append(f"at {current}")
    text = f"pullback: {compile_.title}, {time.monotonic() - compile_.start:.0f} s: {', '.join(parts)}"
    return text if len(text) <= width else f"{text[: width - 3]}..."


def _current_line(thread: int) -> str:
    """Return the user's line that a thread is at, which is being traced; empty if there is none."""
    frame = user_frame(sys._current_frames().get(thread))
    return "" if frame is None else f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
