"""Reads of the clock, which a program makes each time that it runs."""

from __future__ import annotations

import time
from typing import Any

from pullback.ir import OPS, ArrayType
from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.arrays.traced import TracedArray
from pullback.tracer.user_code.errors import TraceError, user_loc

CLOCKS = (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "process_time_ns",
    "thread_time", "thread_time_ns",
)  # fmt: skip
"""The functions of the ``time`` module that a program calls. What is before such a call has been computed then
(``ir/passes/order_clocks.py``)."""


def _register(name: str) -> None:
    @twin(f"time.{name}")
    def read() -> Any:
        frame, loc = current(), user_loc()
        if frame is None or frame.root.has_effects_of_trace:
            return getattr(time, name)()
        if any(f.takes_writes or not f.takes_stores for f in frame.outward):
            raise TraceError(
                f"time.{name}() in a branch or loop on traced values, or in a function that runs any number of times; "
                "read the clock before and after it"
            )
        value, *_ = frame.builder.at(loc).emit(OPS["clock"], (), {"clock": name, "shape": ()})
        assert isinstance(value.type, ArrayType)
        return TracedArray(value.type, frame, value, weak="int" if name.endswith("_ns") else "float", loc=loc)


for _name in CLOCKS:
    _register(_name)
