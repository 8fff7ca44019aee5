"""Loops and branches of a driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.codegen.llvm_ticks import tick
from pullback.ir.structure import Instruction, Value

if TYPE_CHECKING:
    from pullback.codegen.llvm_program import ProgramWriter


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
    tick(e)
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
    tick(e)
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
