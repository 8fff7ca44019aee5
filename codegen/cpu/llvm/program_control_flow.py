"""Emits loops and branches of a driver, and the stacks on which a loop keeps values for its gradient.

A stack is a block of memory that grows, iteration by iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.codegen.cpu.llvm.program_text import DriverText, StackSlots
from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value

FIRST_TICK = 8


def repeat(e: DriverText, i: Instruction) -> None:
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


def repeat_while(e: DriverText, i: Instruction) -> None:
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


def branch(e: DriverText, i: Instruction) -> None:
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


def _carried(e: DriverText, values: Sequence[Value]) -> list[str]:
    """Slots with the addresses of references that change from run to run."""
    slots = []
    for value in values:
        slots.append(e.slot("ptr"))
        e.line(f"store ptr {e.places[value].pointer}, ptr {slots[-1]}")
    return slots


def _take(e: DriverText, values: Sequence[Value], slots: Sequence[str]) -> None:
    """References are where the slots say."""
    for value, slot in zip(values, slots, strict=True):
        e.put(value, e.let(f"load ptr, ptr {slot}"))


def _keep(e: DriverText, values: Sequence[Value], slots: Sequence[str]) -> None:
    """The slots say where references are."""
    for value, slot in zip(values, slots, strict=True):
        e.line(f"store ptr {e.places[value].pointer}, ptr {slot}")


def _tick(e: DriverText) -> None:
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


LEAST_BLOCK = 1024
"""Bytes of a stack's first block."""

NO_MEMORY = ("MemoryError", "there is no memory for what a loop keeps for its gradient")


def stack(e: DriverText, i: Instruction) -> None:
    """Make an empty stack, with room for as many values as an operand says."""
    made = StackSlots(e.slot("ptr"), e.slot("i64"), e.slot("i64"))
    e.entry.append(f"  store ptr null, ptr {made.block}")
    e.stacks[i.result] = made
    if i.operands:
        count = e.intrinsic("i64", "llvm.smax.i64", [("i64", e.integer(i.operands[0])), ("i64", "0")])
        _resized(e, made, i.result.type, count, i)
    else:
        count = "0"
        e.line(f"store i64 0, ptr {made.room}")
    e.line(f"store i64 {count}, ptr {made.count}")


def _resized(e: DriverText, stack: StackSlots, t: Any, room: str, i: Instruction) -> None:
    """Room for so many values, those there are kept."""
    total = e.let(f"mul i64 {room}, {e.bytes(t)}")
    some = e.intrinsic("i64", "llvm.smax.i64", [("i64", total), ("i64", "64")])
    before = e.let(f"load ptr, ptr {stack.block}")
    after = e.let(f"call ptr {e.callee('c', 'realloc')}(ptr {before}, i64 {some})")
    (got,) = e.labels("got")
    out = e.leave((*NO_MEMORY, str(i.loc)))
    e.line(f"br i1 {e.let(f'icmp eq ptr {after}, null')}, label %{out}, label %{got}")
    e.label(got)
    e.line(f"store ptr {after}, ptr {stack.block}")
    e.line(f"store i64 {room}, ptr {stack.room}")


def push(e: DriverText, i: Instruction) -> None:
    """Room for one value more, whose place is the result."""
    stack, t = e.stacks[i.operands[0]], i.result.type
    grow, on = e.labels("grow", "pushed")
    count = e.let(f"load i64, ptr {stack.count}")
    room = e.let(f"load i64, ptr {stack.room}")
    e.line(f"br i1 {e.let(f'icmp eq i64 {count}, {room}')}, label %{grow}, label %{on}")
    e.label(grow)
    size = e.intrinsic("i64", "llvm.smax.i64", [("i64", e.bytes(t)), ("i64", "1")])
    least = e.let(f"udiv i64 {LEAST_BLOCK}, {size}")
    least = e.intrinsic("i64", "llvm.smax.i64", [("i64", least), ("i64", "1")])
    more = e.intrinsic("i64", "llvm.smax.i64", [("i64", e.let(f"shl i64 {room}, 1")), ("i64", least)])
    _resized(e, stack, t, more, i)
    e.line(f"br label %{on}")
    e.label(on)
    block = e.let(f"load ptr, ptr {stack.block}")
    offset = e.let(f"mul i64 {count}, {e.bytes(t)}")
    e.put(i.result, e.let(f"getelementptr i8, ptr {block}, i64 {offset}"))
    e.line(f"store i64 {e.let(f'add i64 {count}, 1')}, ptr {stack.count}")


def release(e: DriverText, stack: StackSlots) -> None:
    """Give a stack's block back."""
    block = e.let(f"load ptr, ptr {stack.block}")
    e.line(f"call void {e.callee('c', 'free')}(ptr {block})")
    e.line(f"store ptr null, ptr {stack.block}")
