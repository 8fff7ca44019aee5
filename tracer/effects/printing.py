"""``print`` in a traced function: the program prints at each call what Python prints there."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.effects.emission import emit_effect
from pullback.tracer.effects.streams import OutsideFile
from pullback.tracer.names.proxies import Outside, Refused
from pullback.tracer.user_code.errors import TraceError

INSTEAD = "write pb.print, which prints all rows at once"


@twin(print)
def printed(*values: Any, **options: Any) -> None:
    """Print, each time the program runs; in a trace whose effects are those of the trace, now."""
    frame, file = current(), options.get("file")
    if frame is None or frame.root.has_effects_of_trace:
        if frame is not None and frame.is_conditional:
            raise TraceError("print in a branch or loop on traced values; write pb.print, which prints where it runs")
        if type(file) is OutsideFile:
            options["file"] = file._now()
        print(*values, **options)
        return
    if file is None:
        function: Any = builtins.print
    elif type(file) is OutsideFile:
        function = partial(_print_to, file._now)
        del options["file"]
    elif isinstance(file, Outside | Refused):
        function = builtins.print
    else:
        raise TraceError("print into a file that the function made; return the values, and print them after the call")
    emit_effect(function, "print", values, options, INSTEAD)


def _print_to(now: Callable[[], Any], *values: Any, **options: Any) -> None:
    """Print into the file that there is now."""
    print(*values, file=now(), **options)


@twin(np.printoptions)
@contextmanager
def _print_options(*args: Any, **options: Any) -> Iterator[Any]:
    frame = current()
    with np.printoptions(*args, **options) as changed:
        if frame is None:
            yield changed
            return
        root = frame.root
        before = root.print_options
        root.print_options = {**before, **dict(zip(_OPTIONS, args, strict=False)), **options}
        try:
            yield changed
        finally:
            root.print_options = before


_OPTIONS = tuple(inspect.signature(np.set_printoptions).parameters)
