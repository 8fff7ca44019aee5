"""Loops and branches of a driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.ir.structure import Instruction, Value

if TYPE_CHECKING:
    from pullback.codegen.llvm_program import ProgramWriter

FIRST_TICK = 8


def repeat(e: ProgramWriter, i: Instruction) -> None:
    """A loop of a known number of runs."""
    (region,) = i.regions
    length = i.params["length"]
    index, *rest = i.operands
    count = e.extent(length[0]) if length else e.integer(rest.pop(0))
    slots = _carried(e, rest)
    position = e.slot("i64")
    e.line(f"store i64 0, ptr {position}")
    head, body, end = e.labels("head", "body", "end")
    e.line(f"br label %{head}")
    e.label(head)
    k = e.let(f"load i64, ptr {position}")
    e.line(f"br i1 {e.let(f'icmp slt i64 {k}, {count}')}, label %{body}, label %{end}")
    e.label(body)
    place = e.let(f"sub i64 {e.let(f'sub i64 {count}, 1')}, {k}") if i.params["reverse"] else k
    e.line(f"store i64 {place}, ptr {e.places[index].pointer}")
    _take(e, region.parameters, slots)
    e.block(region)
    _keep(e, region.results, slots)
    e.line(f"store i64 {e.let(f'add i64 {k}, 1')}, ptr {position}")
    _tick(e)
    e.line(f"br label %{head}")
    e.label(end)
    _take(e, i.results, slots)


def repeat_while(e: ProgramWriter, i: Instruction) -> None:
    """A loop that goes on while its condition holds."""
    condition, region = i.regions
    index, *rest = i.operands
    place = e.places[index].pointer
    slots = _carried(e, rest)
    e.line(f"store i64 0, ptr {place}")
    head, body, end = e.labels("head", "body", "end")
    e.line(f"br label %{head}")
    e.label(head)
    _take(e, condition.parameters, slots)
    e.block(condition)
    goes_on = e.let(f"load i8, ptr {e.places[condition.results[0]].pointer}")
    e.line(f"br i1 {e.let(f'icmp ne i8 {goes_on}, 0')}, label %{body}, label %{end}")
    e.label(body)
    _take(e, region.parameters, slots)
    e.block(region)
    _keep(e, region.results, slots)
    number = e.let(f"load i64, ptr {place}")
    e.line(f"store i64 {e.let(f'add i64 {number}, 1')}, ptr {place}")
    _tick(e)
    e.line(f"br label %{head}")
    e.label(end)
    _take(e, i.results, slots)


def branch(e: ProgramWriter, i: Instruction) -> None:
    """One of several regions, by number."""
    names = [e.labels("case")[0] for _ in i.regions]
    (after,) = e.labels("joined")
    index = e.integer(i.operands[0])
    if len(names) == 2:
        e.line(f"br i1 {e.let(f'icmp eq i64 {index}, 0')}, label %{names[0]}, label %{names[1]}")
    else:
        cases = " ".join(f"i64 {k}, label %{name}" for k, name in enumerate(names[1:], 1))
        e.line(f"switch i64 {index}, label %{names[0]} [ {cases} ]")
    for name, region in zip(names, i.regions, strict=True):
        e.label(name)
        e.block(region)
        e.line(f"br label %{after}")
    e.label(after)


def _carried(e: ProgramWriter, values: Sequence[Value]) -> list[str]:
    """Slots with the addresses of references that change from run to run."""
    slots = []
    for value in values:
        slots.append(e.slot("ptr"))
        e.line(f"store ptr {e.places[value].pointer}, ptr {slots[-1]}")
    return slots


def _take(e: ProgramWriter, values: Sequence[Value], slots: Sequence[str]) -> None:
    """References are where the slots say."""
    for value, slot in zip(values, slots, strict=True):
        e.put(value, e.let(f"load ptr, ptr {slot}"))


def _keep(e: ProgramWriter, values: Sequence[Value], slots: Sequence[str]) -> None:
    """The slots say where references are."""
    for value, slot in zip(values, slots, strict=True):
        e.line(f"store ptr {e.places[value].pointer}, ptr {slot}")


def _tick(e: ProgramWriter) -> None:
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
