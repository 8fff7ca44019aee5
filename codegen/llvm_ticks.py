"""How loops of a driver ask, now and then, whether the program is to be interrupted."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pullback.codegen.llvm_program import ProgramWriter

FIRST_TICK = 8


def tick(e: ProgramWriter) -> None:
    """At the end of a run: count down to the next look at the clock, which may end the program."""
    e.ticks = True
    left, state = e.slot("i64"), e.slot("[2 x i64]")
    period = e.at_entry(f"getelementptr i64, ptr {state}, i64 1")
    e.entry += [
        f"  store i64 {FIRST_TICK}, ptr {left}",
        f"  store i64 0, ptr {state}",
        f"  store i64 {FIRST_TICK}, ptr {period}",
    ]
    look, on = e.labels("look", "on")
    now = e.let(f"sub i64 {e.let(f'load i64, ptr {left}')}, 1")
    e.line(f"store i64 {now}, ptr {left}")
    e.line(f"br i1 {e.let(f'icmp eq i64 {now}, 0')}, label %{look}, label %{on}")
    table, found, stops = e.native("poll"), e.fresh(), e.fresh()
    pointer = e.fresh()
    out = e.leave(None)
    e.cold += [
        f"{look}:",
        f"  {pointer} = inttoptr i64 {table} to ptr",
        f"  {found} = call i64 @tick(ptr {state}, ptr {pointer})",
        f"  store i64 {found}, ptr {left}",
        f"  {stops} = icmp eq i64 {found}, 0",
        f"  br i1 {stops}, label %{out}, label %{on}",
    ]
    e.label(on)
