"""Ctrl-C between the steps of a program: native code reads the clock before some steps of a long program, and polls as loops
do.

The function of such a step is replaced by one that polls and then calls the step's own. Its argument slots precede those of
the step: so steps keep their indices, and small programs are unchanged. Host calls are polled before immediately: an exception
that a signal handler raises at the very entry of one would be lost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from pullback.codegen.cpu.llvm.interrupt_poll import ASKED
from pullback.ir.core.structure import Instruction
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.shapes.extents import value_of
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program import interrupts
from pullback.runtime.program.launcher import address_of
from pullback.runtime.program.loaded_kernel import LoadedKernel
from pullback.runtime.program.plan import Plan

SLOTS = ("step", "table", "shift", "begins", "last")
"""The step's own function; the table of ``interrupts``; the offset in bytes from here to the slot ``last`` of the first step
that reads the clock; whether this is that one; the time of the last poll."""
STOPPED = 0xFFFFFFFF
"""The status of a step before which a signal handler raised."""
WORK = 1 << 20
"""The work between two readings of the clock, in scalars that a step accesses: some hundred microseconds, of which a reading
is a thousandth."""


def _at(name: str) -> str:
    return f"%{name}.at = getelementptr i64, ptr %slots, i64 {SLOTS.index(name)}"


SOURCE = f"""{ASKED}
define internal i64 @ask_first(ptr %slots, ptr %table) {{
  %stops = call i64 @asked(ptr %table)
  %stopped = icmp ne i64 %stops, 0
  br i1 %stopped, label %stop, label %go
stop:
  ret i64 {STOPPED}
go:
  %step = load ptr, ptr %slots
  %own = getelementptr i64, ptr %slots, i64 {len(SLOTS)}
  %status = call i64 %step(ptr %own)
  ret i64 %status
}}

define i64 @pullback_host_step(ptr %slots) {{
  {_at("table")}
  %table = load ptr, ptr %table.at
  %status = call i64 @ask_first(ptr %slots, ptr %table)
  ret i64 %status
}}

define i64 @pullback_long_step(ptr %slots) {{
  {_at("table")}
  %table = load ptr, ptr %table.at
  %clock = load ptr, ptr %table
  %time = call i64 %clock()
  %now = trunc i64 %time to i32
  {_at("shift")}
  %shift = load i64, ptr %shift.at
  %state = getelementptr i8, ptr %slots, i64 %shift
  {_at("begins")}
  %begins = load i64, ptr %begins.at
  %is.first = icmp ne i64 %begins, 0
  br i1 %is.first, label %begin, label %look
begin:
  store i32 %now, ptr %state
  br label %go
look:
  %last = load i32, ptr %state
  %elapsed = sub i32 %now, %last
  %quantum.at = getelementptr i64, ptr %table, i64 1
  %quantum = load i32, ptr %quantum.at
  %is.early = icmp slt i32 %elapsed, %quantum
  br i1 %is.early, label %go, label %due
due:
  store i32 %now, ptr %state
  %after = call i64 @ask_first(ptr %slots, ptr %table)
  ret i64 %after
go:
  %step = load ptr, ptr %slots
  %own = getelementptr i64, ptr %slots, i64 {len(SLOTS)}
  %status = call i64 %step(ptr %own)
  ret i64 %status
}}
"""


def polled_steps(plan: Plan, kernels: Mapping[str, LoadedKernel], homes: Set[Value], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the steps of a program with these sizes before which to poll: host calls, and in a long program those after much
    work, with the first step, which starts the clock. None follows a step that may overwrite a parameter, one of ``homes``:
    parameters must be unchanged if a program is interrupted."""
    polled, timed, done = [], [0], 0.0
    for index, step in enumerate(plan.steps):
        owners = [plan.owner[v] for v in step.operands if v in plan.owner]
        if isinstance(step.op, Host):
            polled.append(index)
        elif index and done >= WORK:
            timed.append(index)
            done = 0.0
        if not homes.isdisjoint(owners):
            break
        done += _work(step, owners, kernels, sizes)
    return tuple(sorted({*polled, *timed} if len(timed) > 1 else polled))


def _work(step: Instruction, owners: Sequence[Value], kernels: Mapping[str, LoadedKernel], sizes: Mapping[str, int]) -> float:
    """Estimate the work of a step: the scalars of its largest buffer; for BLAS and LAPACK as for square matrices."""
    shapes = [v.type.shape for v in owners if isinstance(v.type, RefType)]
    most = float(max((math.prod(value_of(e, sizes) for e in shape) for shape in shapes), default=0))
    kernel = kernels.get(step.params.get("kernel", ""))
    is_library = kernel is not None and any(slot[0] in ("library", "gemm") for slot in kernel.slots)
    return most**1.5 / 16 if is_library else most


def fill(block: list[int], functions: list[int], starts: Sequence[int], steps: Mapping[int, Instruction]) -> None:
    """Make native code poll before these steps, by index, whose slots begin with ``SLOTS``."""
    if not steps:
        return
    code = default_engine().load(SOURCE, symbols=["pullback_host_step", "pullback_long_step"])
    first = min((index for index, step in steps.items() if not isinstance(step.op, Host)), default=0)
    for index, step in steps.items():
        at = starts[index]
        values = {
            "step": functions[index], "table": address_of(interrupts.table()), "last": 0,
            "shift": 8 * (starts[first] + SLOTS.index("last") - at), "begins": int(index == first),
        }  # fmt: skip
        block[at : at + len(SLOTS)] = [values[name] for name in SLOTS]
        functions[index] = code["pullback_host_step" if isinstance(step.op, Host) else "pullback_long_step"]
