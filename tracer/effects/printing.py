"""``print`` in a traced function: the program prints at each call what Python prints there."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.effects.emission import emit_effect
from pullback.tracer.names.proxies import Outside, Refused
from pullback.tracer.user_code.errors import TraceError

INSTEAD = "write pb.print, which prints all rows at once"


@twin(print)
def printed(*values: Any, **options: Any) -> None:
    """Print, each time the program runs; in a trace whose effects are those of the trace, now."""
    frame = current()
    if frame is None:
        print(*values, **options)
    elif frame.root.has_effects_of_trace:
        if frame.is_conditional:
            raise TraceError("print in a branch or loop on traced values; write pb.print, which prints where it runs")
        print(*values, **options)
    else:
        file = options.get("file")
        if file is not None and file is not sys.stdout and file is not sys.stderr and not isinstance(file, Outside | Refused):
            raise TraceError("print into a file that the function made; return the values, and print them after the call")
        emit_effect(builtins.print, "print", values, options, INSTEAD)
