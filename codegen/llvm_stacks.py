"""Stacks of a driver: what a loop keeps for its gradient, run by run, in a block of memory that grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pullback.ir.structure import Instruction

if TYPE_CHECKING:
    from pullback.codegen.llvm_program import ProgramWriter

LEAST_BLOCK = 1024
"""Bytes of a stack's first block."""

NO_MEMORY = ("MemoryError", "there is no memory for what a loop keeps for its gradient")


@dataclass(frozen=True, eq=False)
class StackSlots:
    """A stack: slots with the address of its block, the count of its values, and how many fit."""

    block: str
    count: str
    room: str


def stack(e: ProgramWriter, i: Instruction) -> None:
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


def _resized(e: ProgramWriter, stack: StackSlots, t: Any, room: str, i: Instruction) -> None:
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


def push(e: ProgramWriter, i: Instruction) -> None:
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


def release(e: ProgramWriter, stack: StackSlots) -> None:
    """Give a stack's block back."""
    block = e.let(f"load ptr, ptr {stack.block}")
    e.line(f"call void {e.callee('c', 'free')}(ptr {block})")
    e.line(f"store ptr null, ptr {stack.block}")
