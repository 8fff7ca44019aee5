"""The native function that runs a program's steps, and the struct offsets that it relies on.

It reads the addresses of arrays directly from two Python lists (arguments and results), writes them into the argument slots of
the steps, and calls the steps in order. That takes two offsets of CPython and NumPy structs: of a list's items and of an
array's data. Both are tested before their first use; if the test fails, Python reads the address of each array instead.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.codegen.cpu.llvm.text import TIERED
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.process import counters

LIST_ITEMS = 24
"""The offset of the items pointer in a Python list."""
ARRAY_DATA = 16
"""The offset of the data pointer in a NumPy array."""
HEADER = ("functions", "offsets", "steps", "targets", "sources", "shifts", "pointers", "arguments", "results")
"""The fields of the header that the native function reads."""

RUNNER = f"""{TIERED}
define i64 @pullback_run(ptr %header, ptr %arguments, ptr %results, i64 %arena, ptr %block) {{
entry:
{
    "".join(
        f'''  %{name}.at = getelementptr i64, ptr %header, i64 {k}
  %{name} = load {"ptr" if name in ("functions", "offsets", "targets", "sources", "shifts") else "i64"}, ptr %{name}.at
'''
        for k, name in enumerate(name if name not in ("arguments", "results") else f"n.{name}" for name in HEADER)
    )
}
  %both = add i64 %n.arguments, %n.results
  %ai = getelementptr i8, ptr %arguments, i64 {LIST_ITEMS}
  %a.items = load ptr, ptr %ai
  %ri = getelementptr i8, ptr %results, i64 {LIST_ITEMS}
  %r.items = load ptr, ptr %ri
  br label %fill
fill:
  %p = phi i64 [ 0, %entry ], [ %p.next, %put ]
  %p.more = icmp slt i64 %p, %pointers
  br i1 %p.more, label %one, label %run
one:
  %source.at = getelementptr i64, ptr %sources, i64 %p
  %source = load i64, ptr %source.at
  %is.argument = icmp slt i64 %source, %n.arguments
  br i1 %is.argument, label %from.argument, label %other
from.argument:
  %item.a = getelementptr ptr, ptr %a.items, i64 %source
  br label %array
other:
  %is.result = icmp slt i64 %source, %both
  br i1 %is.result, label %from.result, label %put
from.result:
  %k.result = sub i64 %source, %n.arguments
  %item.r = getelementptr ptr, ptr %r.items, i64 %k.result
  br label %array
array:
  %item = phi ptr [ %item.a, %from.argument ], [ %item.r, %from.result ]
  %object = load ptr, ptr %item
  %data.at = getelementptr i8, ptr %object, i64 {ARRAY_DATA}
  %data = load i64, ptr %data.at
  br label %put
put:
  %address = phi i64 [ %arena, %other ], [ %data, %array ]
  %shift.at = getelementptr i64, ptr %shifts, i64 %p
  %shift = load i64, ptr %shift.at
  %moved = add i64 %address, %shift
  %target.at = getelementptr i64, ptr %targets, i64 %p
  %target = load i64, ptr %target.at
  %slot = getelementptr i64, ptr %block, i64 %target
  store i64 %moved, ptr %slot
  %p.next = add i64 %p, 1
  br label %fill
run:
  br label %head
head:
  %k = phi i64 [ 0, %run ], [ %next, %on ]
  %more = icmp slt i64 %k, %steps
  br i1 %more, label %body, label %done
body:
  %fp = getelementptr ptr, ptr %functions, i64 %k
  %function = load ptr, ptr %fp
  %op = getelementptr i64, ptr %offsets, i64 %k
  %offset = load i64, ptr %op
  %own = getelementptr i64, ptr %block, i64 %offset
  %status = call i64 %function(ptr %own)
  %next = add i64 %k, 1
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %out, label %on
on:
  br label %head
out:
  %high = shl i64 %next, 32
  %code = or i64 %high, %status
  ret i64 %code
done:
  ret i64 0
}}
"""

Native = Callable[[int, int, int, int, int], int]


class Launcher:
    """Runs steps natively. ``reads_arrays``: whether it reads addresses from the lists itself."""

    def __init__(self) -> None:
        with counters.own():
            address = default_engine().load(RUNNER, symbols=["pullback_run"])["pullback_run"]
        i64 = ctypes.c_int64
        self.native: Native = ctypes.CFUNCTYPE(i64, i64, i64, i64, i64, i64)(address)
        self.reads_arrays = self.self_test()

    def self_test(self) -> bool:
        """Return whether the struct offsets hold in this process: known addresses are where they are expected."""
        if sys.implementation.name != "cpython" or not getattr(sys, "_is_gil_enabled", lambda: True)():
            return False
        arrays = [np.zeros(3), np.zeros((2, 2), np.float32)[1:], np.zeros(())]
        items = _word(id(arrays) + LIST_ITEMS)
        return all(_holds(items + 8 * k, id(a)) and _holds(id(a) + ARRAY_DATA, address_of(a)) for k, a in enumerate(arrays))


def compile_in_background() -> None:
    """Start compiling the launcher's code in a background thread, if there is no launcher yet."""
    if not launcher.cache_info().currsize:
        default_engine().compile_in_background(RUNNER)


@functools.cache
def launcher() -> Launcher:
    """Return the launcher of this process."""
    return Launcher()


def address_of(array: Any) -> int:
    """Return the address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def fill(
    block: Any, targets: Sequence[int], sources: Sequence[int], shifts: Sequence[int], arrays: Sequence[Any], arena: int
) -> None:
    """Write addresses into argument slots in Python, as the native function does."""
    for target, source, shift in zip(targets, sources, shifts, strict=True):
        block[target] = (address_of(arrays[source]) if source < len(arrays) else arena) + shift


def _word(address: int) -> int:
    return int(ctypes.c_int64.from_address(address).value)


def _holds(address: int, expected: int) -> bool:
    return _word(address) == expected
