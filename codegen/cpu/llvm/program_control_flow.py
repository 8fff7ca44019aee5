"""Emit loops and branches of a driver, the growing stacks on which a loop saves values for its gradient, and the buffers whose
extents the program computes, which are blocks of heap memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.codegen.cpu.llvm.program_interface import on_stack
from pullback.codegen.cpu.llvm.program_text import Buffer, DriverText, HeapSlots, StackSlots
from pullback.codegen.cpu.llvm.text import RARELY
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Extent, Fail, Load, Store
from pullback.ir.ops.program import Branch, Copy, Launch, Repeat, RepeatWhile

FIRST_PERIOD = 8
"""Iterations of a loop before its first poll if one may take long; ``tick`` then adapts the number to the clock."""
FIRST_OPERATIONS = 1 << 18
"""Operations on scalars before the first poll of a loop of such operations alone: less than a millisecond. A poll reads the
clock, in 0.7 microseconds where no other is cheaper: 40 iterations of a system of three equations."""
COSTLY = 16
"""Operations that an op which is not cheap, such as a logarithm, counts as."""


def repeat(e: DriverText, i: Instruction) -> None:
    """Emit a loop whose trip count is computed before it."""
    (region,) = i.regions
    length = i.params["length"]
    index, *rest = i.operands
    count = e.extent(length[0]) if length else e.integer(rest.pop(0))
    slots = _carried(e, rest)
    position = e.slot("i64")
    e.line(f"store i64 0, ptr {position}")
    head, body, end = e.labels("head", "body", "end")
    is_innermost = not any(isinstance(j.op, Repeat | RepeatWhile) for j in walk(region))
    strip = _begin_strip(e, position, count, end, first_period(i.regions, e.kernels)) if is_innermost else None
    e.line(f"br label %{head}")
    e.label(head)
    k = e.let(f"load i64, ptr {position}")
    is_inside = e.let(f"icmp slt i64 {k}, {strip.limit if strip else count}")
    e.line(f"br i1 {is_inside}, label %{body}, label %{strip.end if strip else end}")
    e.label(body)
    iteration = e.let(f"sub i64 {e.let(f'sub i64 {count}, 1')}, {k}") if i.params["reverse"] else k
    e.line(f"store i64 {iteration}, ptr {e.locations[index].pointer}")
    _load_carried(e, region.parameters, slots)
    e.block(region)
    _store_carried(e, region.results, slots)
    e.line(f"store i64 {e.let(f'add i64 {k}, 1')}, ptr {position}")
    if strip is None:
        _tick(e, first_period(i.regions, e.kernels))
    e.line(f"br label %{head}")
    if strip is not None:
        _end_strip(e, strip, end)
    e.label(end)
    _load_carried(e, i.results, slots)


@dataclass(frozen=True, eq=False)
class _Strip:
    """The strips of an innermost loop, between which the program polls. ``head``, ``end``: labels; ``limit``: the iteration
    before which a strip ends; ``size``: its iterations; ``polls``: the countdown to the next poll."""

    head: str
    end: str
    limit: str
    size: str
    polls: _Countdown


def _begin_strip(e: DriverText, position: str, count: str, end: str, period: int) -> _Strip:
    """Emit the head of the loop over strips: a strip ends with the loop or at the next poll."""
    polls = _countdown(e, period)
    head, strip, after = e.labels("strips", "strip", "strip_end")
    e.line(f"br label %{head}")
    e.label(head)
    first = e.let(f"load i64, ptr {position}")
    rest = e.let(f"sub i64 {count}, {first}")
    e.line(f"br i1 {e.let(f'icmp sgt i64 {rest}, 0')}, label %{strip}, label %{end}")
    e.label(strip)
    left = e.let(f"load i64, ptr {polls.left}")
    size = e.intrinsic("i64", "llvm.smin.i64", [("i64", rest), ("i64", left)])
    return _Strip(head, after, e.let(f"add i64 {first}, {size}"), size, polls)


def _end_strip(e: DriverText, strip: _Strip, end: str) -> None:
    """Emit the end of a strip: it was the last one, or a poll is due."""
    e.label(strip.end)
    left = e.let(f"sub i64 {e.let(f'load i64, ptr {strip.polls.left}')}, {strip.size}")
    e.line(f"store i64 {left}, ptr {strip.polls.left}")
    _poll_if_due(e, strip.polls, left, strip.head, end)


def repeat_while(e: DriverText, i: Instruction) -> None:
    """Emit a loop that runs while its condition holds. It polls before the body, so that nothing is between a condition that
    the body computes by branches and its test: LLVM joins them."""
    condition, region = i.regions
    index, *rest = i.operands
    counter = e.locations[index].pointer
    slots = _carried(e, rest)
    e.line(f"store i64 0, ptr {counter}")
    head, body, end = e.labels("head", "body", "end")
    e.line(f"br label %{head}")
    e.label(head)
    _load_carried(e, condition.parameters, slots)
    e.block(condition)
    goes_on = e.let(f"load i8, ptr {e.locations[condition.results[0]].pointer}")
    e.line(f"br i1 {e.let(f'icmp ne i8 {goes_on}, 0')}, label %{body}, label %{end}")
    e.label(body)
    _tick(e, first_period(i.regions, e.kernels))
    _load_carried(e, region.parameters, slots)
    e.block(region)
    _store_carried(e, region.results, slots)
    count = e.let(f"load i64, ptr {counter}")
    e.line(f"store i64 {e.let(f'add i64 {count}, 1')}, ptr {counter}")
    e.line(f"br label %{head}")
    e.label(end)
    _load_carried(e, i.results, slots)


def branch(e: DriverText, i: Instruction) -> None:
    """Emit a branch to one of several regions, selected by an index."""
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
    """Return slots that hold the addresses of carried references."""
    slots = []
    for value in values:
        slots.append(e.slot("ptr"))
        e.line(f"store ptr {e.locations[value].pointer}, ptr {slots[-1]}")
    return slots


def _load_carried(e: DriverText, values: Sequence[Value], slots: Sequence[str]) -> None:
    """Bind references to the addresses in the slots."""
    for value, slot in zip(values, slots, strict=True):
        e.bind(value, e.let(f"load ptr, ptr {slot}"))


def _store_carried(e: DriverText, values: Sequence[Value], slots: Sequence[str]) -> None:
    """Store the addresses of references in the slots."""
    for value, slot in zip(values, slots, strict=True):
        e.line(f"store ptr {e.locations[value].pointer}, ptr {slot}")


def is_over_scalars(regions: Sequence[Block], kernels: Mapping[str, Function]) -> bool:
    """Return whether a loop computes with scalars alone."""
    return _scalar_operations(regions, kernels) is not None


def first_period(regions: Sequence[Block], kernels: Mapping[str, Function]) -> int:
    """Return the number of iterations of a loop before its first poll: ``FIRST_OPERATIONS`` if the loop computes with scalars
    alone, ``FIRST_PERIOD`` if it computes with arrays. Loops inside poll by themselves."""
    operations = _scalar_operations(regions, kernels)
    return FIRST_PERIOD if operations is None else max(FIRST_OPERATIONS // operations, FIRST_PERIOD)


def _scalar_operations(regions: Sequence[Block], kernels: Mapping[str, Function]) -> int | None:
    """Return the number of operations of an iteration, without the loops in it; None if it computes with arrays."""
    operations, stack = 1, list(regions)
    while stack:
        for i in stack.pop().instructions:
            if isinstance(i.op, Launch):
                body = kernels[i.params["kernel"]].instructions
                if not all(isinstance(k.op, Elementwise | Constant | Extent | Fail | Load | Store) for k in body):
                    return None
                operations += sum(COSTLY if isinstance(k.op, Elementwise) and not k.op.cheap else 1 for k in body)
            elif isinstance(i.op, Branch):
                stack += i.regions
            elif isinstance(i.op, Host) or (isinstance(i.op, Copy) and not on_stack(i.operands[0].type)):
                return None
    return operations


@dataclass(frozen=True, eq=False)
class _Countdown:
    """The stack slots of a countdown to the next poll: the iterations left, and the state of ``tick``."""

    left: str
    state: str


def _countdown(e: DriverText, period: int) -> _Countdown:
    """Emit, at the entry of the driver, the countdown of a loop. ``period``: the number of iterations before the first poll."""
    e.ticks = True
    countdown = _Countdown(e.slot("i64"), e.slot("[2 x i64]"))
    period_slot = e.at_entry(f"getelementptr i64, ptr {countdown.state}, i64 1")
    e.entry += [
        f"  store i64 {period}, ptr {countdown.left}",
        f"  store i64 0, ptr {countdown.state}",
        f"  store i64 {period}, ptr {period_slot}",
    ]
    return countdown


def _tick(e: DriverText, period: int) -> None:
    """Emit, at the start or the end of an iteration, the countdown to the next poll, which may end the program. ``period``: the
    number of iterations before the first."""
    countdown = _countdown(e, period)
    left = e.let(f"sub i64 {e.let(f'load i64, ptr {countdown.left}')}, 1")
    e.line(f"store i64 {left}, ptr {countdown.left}")
    (on,) = e.labels("on")
    _poll_if_due(e, countdown, left, on, on)
    e.label(on)


def _poll_if_due(e: DriverText, countdown: _Countdown, left: str, polled: str, otherwise: str) -> None:
    """Emit a poll if no iterations are left, after which the program goes on at ``polled`` or ends; else a jump to
    ``otherwise``."""
    (poll,) = e.labels("look")
    e.line(f"br i1 {e.let(f'icmp eq i64 {left}, 0')}, label %{poll}, label %{otherwise}, !prof !9000")
    e.declared[RARELY] = None
    table, period_left, stops = e.native("poll"), e.fresh(), e.fresh()
    out = e.exit_label(None)
    e.cold += [
        f"{poll}:",
        f"  {period_left} = call i64 @tick(ptr {countdown.state}, i64 {table}) "
        "memory(argmem: readwrite, inaccessiblemem: readwrite)",
        f"  store i64 {period_left}, ptr {countdown.left}",
        f"  {stops} = icmp eq i64 {period_left}, 0",
        f"  br i1 {stops}, label %{out}, label %{polled}",
    ]


LEAST_BLOCK = 1024
"""Smallest size, in bytes, of a stack's first block."""

STACK_OUT_OF_MEMORY = ("MemoryError", "there is no memory for what a loop keeps for its gradient")
"""The error raised if a stack cannot grow."""


def stack(e: DriverText, i: Instruction) -> None:
    """Emit an empty stack, or one with as many values as an operand says."""
    slots = StackSlots(e.slot("ptr"), e.slot("i64"), e.slot("i64"))
    e.entry.append(f"  store ptr null, ptr {slots.block}")
    e.stacks[i.result] = slots
    if i.operands:
        count = e.intrinsic("i64", "llvm.smax.i64", [("i64", e.integer(i.operands[0])), ("i64", "0")])
        _resize(e, slots, i.result.type, count, i)
    else:
        count = "0"
        e.line(f"store i64 0, ptr {slots.capacity}")
    e.line(f"store i64 {count}, ptr {slots.count}")


def _resize(e: DriverText, stack: StackSlots, t: Any, capacity: str, i: Instruction) -> None:
    """Emit a reallocation of a stack to a capacity in values; the values in it are kept."""
    total = e.let(f"mul i64 {capacity}, {e.bytes(t)}")
    some = e.intrinsic("i64", "llvm.smax.i64", [("i64", total), ("i64", "64")])
    before = e.let(f"load ptr, ptr {stack.block}")
    after = e.let(f"call ptr {e.callee('c', 'realloc')}(ptr {before}, i64 {some})")
    (got,) = e.labels("got")
    out = e.exit_label((*STACK_OUT_OF_MEMORY, str(i.loc)))
    e.line(f"br i1 {e.let(f'icmp eq ptr {after}, null')}, label %{out}, label %{got}")
    e.label(got)
    e.line(f"store ptr {after}, ptr {stack.block}")
    e.line(f"store i64 {capacity}, ptr {stack.capacity}")


def push(e: DriverText, i: Instruction) -> None:
    """Emit room for one more value on a stack; the result is its address."""
    stack, t = e.stacks[i.operands[0]], i.result.type
    grow, on = e.labels("grow", "pushed")
    count = e.let(f"load i64, ptr {stack.count}")
    capacity = e.let(f"load i64, ptr {stack.capacity}")
    e.line(f"br i1 {e.let(f'icmp eq i64 {count}, {capacity}')}, label %{grow}, label %{on}")
    e.label(grow)
    size = e.intrinsic("i64", "llvm.smax.i64", [("i64", e.bytes(t)), ("i64", "1")])
    least = e.let(f"udiv i64 {LEAST_BLOCK}, {size}")
    least = e.intrinsic("i64", "llvm.smax.i64", [("i64", least), ("i64", "1")])
    more = e.intrinsic("i64", "llvm.smax.i64", [("i64", e.let(f"shl i64 {capacity}, 1")), ("i64", least)])
    _resize(e, stack, t, more, i)
    e.line(f"br label %{on}")
    e.label(on)
    block = e.let(f"load ptr, ptr {stack.block}")
    offset = e.let(f"mul i64 {count}, {e.bytes(t)}")
    e.bind(i.result, e.let(f"getelementptr i8, ptr {block}, i64 {offset}"))
    e.line(f"store i64 {e.let(f'add i64 {count}, 1')}, ptr {stack.count}")


def release(e: DriverText, stack: StackSlots) -> None:
    """Emit the release of a stack's block."""
    block = e.let(f"load ptr, ptr {stack.block}")
    e.line(f"call void {e.callee('c', 'free')}(ptr {block})")
    e.line(f"store ptr null, ptr {stack.block}")


LEAST_BYTES = 64
"""Smallest size of a block, in bytes: LAPACK writes the required length of its work area into an empty one."""
CLASS_BYTES, MOST_CLASS_BYTES = 1 << 16, 1 << 62
"""Sizes in bytes from which, and up to which, a block has a power of two of bytes: the arrays of successive iterations, whose
lengths differ by little, use the same freed blocks. Pages that are never touched take no memory."""
HEAP_OUT_OF_MEMORY = ("MemoryError", "there is no memory for an array whose length depends on values")
"""The error raised if a block cannot be allocated."""


def heap_buffer(e: DriverText, i: Instruction) -> None:
    """Emit the allocation of a buffer that has an extent by value."""
    slots = e.heap[i.result] = HeapSlots(e.slot("ptr"), e.slot("i64"))
    e.entry.append(f"  store ptr null, ptr {slots.block}")
    size = _size_class(e, e.intrinsic("i64", "llvm.smax.i64", [("i64", e.bytes(i.result.type)), ("i64", str(LEAST_BYTES))]))
    state = e.native("room", "state")
    block = e.let(f"call ptr {e.callee('room', 'take')}(ptr {e.let(f'inttoptr i64 {state} to ptr')}, i64 {size})")
    (got,) = e.labels("got")
    out = e.exit_label((*HEAP_OUT_OF_MEMORY, str(i.loc)))
    e.line(f"br i1 {e.let(f'icmp eq ptr {block}, null')}, label %{out}, label %{got}")
    e.label(got)
    e.line(f"store ptr {block}, ptr {slots.block}")
    e.line(f"store i64 {size}, ptr {slots.size}")
    e.locations[i.result] = Buffer(block)


def _size_class(e: DriverText, size: str) -> str:
    """Emit the number of bytes to allocate for ``size`` bytes, of which there is at least one."""
    before = e.let(f"sub i64 {size}, 1")
    zeros = e.intrinsic("i64", "llvm.ctlz.i64", [("i64", before), ("i1", "true")])
    power = e.let(f"shl i64 1, {e.let(f'sub i64 64, {zeros}')}")
    above = e.let(f"sub i64 {size}, {CLASS_BYTES}")
    is_large = e.let(f"icmp ult i64 {above}, {MOST_CLASS_BYTES - CLASS_BYTES}")
    return e.let(f"select i1 {is_large}, i64 {power}, i64 {size}")


def release_heap(e: DriverText, value: Value) -> None:
    """Emit the release of a buffer's block, if it has one."""
    slots = e.heap[value]
    block = e.let(f"load ptr, ptr {slots.block}")
    live, after = e.labels("live", "freed")
    e.line(f"br i1 {e.let(f'icmp eq ptr {block}, null')}, label %{after}, label %{live}")
    e.label(live)
    size = e.let(f"load i64, ptr {slots.size}")
    state = e.let(f"inttoptr i64 {e.native('room', 'state')} to ptr")
    e.line(f"call void {e.callee('room', 'give')}(ptr {state}, ptr {block}, i64 {size})")
    e.line(f"store ptr null, ptr {slots.block}")
    e.line(f"br label %{after}")
    e.label(after)
