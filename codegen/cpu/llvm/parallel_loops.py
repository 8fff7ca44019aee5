"""Loops over chunks in emitted LLVM code: the body is a function of its own, ``i64 (ptr %context, i64 %chunk)``, which gives the
status of the chunk. What it reads from around the loop is passed in a block of 64-bit slots.

The chunks go to the ``run`` of the argument slot ("threads",), which shares them out and gives the status of the first chunk
that has one; where the kernel has argument slots, the body reads these itself. In a kernel that takes the place of its calls,
one chunk is run in place, and copies of small buffers are passed, so that LLVM can keep the buffers themselves in registers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import Lanes, element, stored
from pullback.codegen.cpu.llvm.text import NAMELESS, THREADS, Writer, named
from pullback.codegen.slots import Slot
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import MOST_PRIVATE, If

LONG, LONG_LOOP, LONG_BRANCH = 250, 100, 150
"""Functions of so many lines are long; loops over chunks, and what runs on one of several conditions, of so many instructions."""
_NAME = re.compile(r"[@!][^ (]+")
FEW = 8
"""So many numbers a buffer may have that is small."""


class Captures:
    """What the body of a loop reads from around it: texts of the enclosing function, and their names inside."""

    def __init__(self, inside: Writer) -> None:
        self.inside = inside
        self.names: dict[tuple[str, str], str] = {}

    def take(self, text: str, type_: str) -> str:
        """The name of a value inside."""
        if not text.startswith("%"):
            return text
        if (text, type_) not in self.names:
            at = self.inside.at_entry(f"getelementptr i64, ptr %context, i64 {len(self.names)}")
            self.names[text, type_] = self.inside.at_entry(f"load {type_}, ptr {at}")
        return self.names[text, type_]

    def block(self, e: FunctionWriter) -> str:
        """The address of the values, side by side."""
        slot = e.slot(f"[{max(len(self.names), 1)} x i64]")
        for k, (text, type_) in enumerate(self.names):
            e.line(f"store {type_} {text}, ptr {e.let(f'getelementptr i64, ptr {slot}, i64 {k}')}")
        return slot


def core_loop(e: FunctionWriter, i: Instruction) -> None:
    """A loop over chunks, whose number may be below 1."""
    assert e.width == 1 and e.mask is None
    count = e.env[i.operands[0]].text
    if not e.inlined:
        share_out(e, *outlined(e, i, {}), count)
        return
    e.count += 1
    several, one, alone, after = (f"{word}{e.count}" for word in ("several", "one", "alone", "after"))
    e.line(f"br i1 {e.let(f'icmp sgt i64 {count}, 1')}, label %{several}, label %{one}")
    e.label(several)
    shown = _shown(e, i)
    share_out(e, *outlined(e, i, shown), count)
    for value, pointer in shown.items():
        _move(e, value.type, pointer, e.places[value].pointer)
    e.line(f"br label %{after}")
    e.label(one)
    e.line(f"br i1 {e.let(f'icmp eq i64 {count}, 1')}, label %{alone}, label %{after}")
    e.label(alone)
    _inline(e, i)
    e.line(f"br label %{after}")
    e.label(after)


def share_out(e: FunctionWriter, function: str, captures: Captures, count: str) -> None:
    """Have threads run a function for so many chunks."""
    context = captures.block(e)
    threads = e.let(f"inttoptr i64 {e.native('threads')} to ptr")
    run = e.let(f"load ptr, ptr {threads}")
    e.join_status(e.let(f"call i64 {run}(ptr {threads}, ptr {function}, ptr {context}, i64 {count})"))


def _inline(e: FunctionWriter, i: Instruction) -> None:
    (region,) = i.regions
    saved = e.env, e.splats, e.places
    e.env, e.splats, e.places = {**e.env, region.parameters[0]: Lanes("0")}, dict(e.splats), dict(e.places)
    e.block(region)
    e.env, e.splats, e.places = saved


def outlined(e: FunctionWriter, i: Instruction, shown: dict[Value, str]) -> tuple[str, Captures]:
    """The function of a loop's body, and what it captures. A long one of several is a module of its own, and so are those that
    are written after it or that wait with one: threads compile these at the same time, and what is left does little but call."""
    inside, captures, body = _written(e, i, shown, (*e.path, i.operands[0]))
    is_long = len(body) >= LONG or bool(e.elsewhere) or any(waiting.size >= LONG_LOOP for waiting in e.waiting)
    if e.direct or not e.has_several or any(inside.functions) or not is_long:
        e.functions.append("\n".join([*inside.functions, f"define internal {_heading(inside.name)}", *body]))
        return f"@{inside.name}", captures
    e.elsewhere.add(i)
    return _module(e, inside, body), captures


def long_branches(body: Block) -> set[Instruction]:
    """What is long and runs under one of several conditions."""
    found: set[Instruction] = set()
    if sum(1 for _ in walk(body)) >= 2 * LONG_BRANCH:
        long = {i for i in body.instructions if isinstance(i.op, If) and sum(1 for _ in walk(i.regions[0])) >= LONG_BRANCH}
        found = long if len(long) > 1 else set().union(*(long_branches(r) for i in body.instructions for r in i.regions))
    return found


def run_apart(e: FunctionWriter, i: Instruction) -> None:
    """What runs under a condition in the body of a loop over chunks, as a module of its own."""
    inside, captures, body = _written(e, i, {}, e.path)
    callee, context = _module(e, inside, body), captures.block(e)
    e.join_status(e.let(f"call i64 {callee}(ptr {context}, i64 0)"))


def _written(
    e: FunctionWriter, i: Instruction, shown: dict[Value, str], path: tuple[Value, ...]
) -> tuple[FunctionWriter, Captures, list[str]]:
    """The writer of a function of a region, whose parameter is its number, what it captures, and its lines. ``path``: what has to
    be other than 0 for it to run."""
    inside, captures = begun(e, i, shown, path, f"{e.name}_{len(e.functions)}")
    return inside, captures, finished(inside, i)


def begun(
    e: FunctionWriter, i: Instruction, shown: dict[Value, str], path: tuple[Value, ...], name: str
) -> tuple[FunctionWriter, Captures]:
    """The same before it is written, with all that it captures but native functions."""
    inside = e.inner(name)
    inside.path = path
    captures = Captures(inside)
    inside.natives_of = lambda *what: captures.take(e.given(*what), "i64")
    if not e.direct:
        block, positions = e.arguments or ("%args", {what: k for k, what in enumerate(e.slots)})
        inside.arguments = captures.take(block, "ptr"), positions
    outer = _outer_values(i)
    inside.sizes = {name: _size(e, inside, captures, name) for name in sorted(_sizes(i, outer)) if name in e.sizes}
    inside.status = inside.slot("i64")
    inside.line(f"store i64 0, ptr {inside.status}")
    numbers = {} if e.direct else {value: k for k, value in enumerate(e.kernel.parameters)}
    for value in outer:
        if value in numbers:
            inside.parameter(numbers[value], value)
            continue
        if value in e.places:
            place = e.places[value]
            inside.places[value] = _captured(captures, place, shown.get(value, place.pointer))
        else:
            lanes = e.env[value]
            inside.env[value] = Lanes(captures.take(lanes.text, element(value.type.dtype)))
    inside.know_extents()
    inside.apart_branches = set() if e.direct else long_branches(i.regions[0])
    inside.env.update((parameter, Lanes("%chunk")) for parameter in i.regions[0].parameters)
    return inside, captures


def finished(inside: FunctionWriter, i: Instruction) -> list[str]:
    """The lines of one that was begun."""
    inside.block(i.regions[0])
    inside.end()
    return ["entry:", *inside.entry, *inside.lines, "}", ""]


def _heading(name: str) -> str:
    return f"i64 @{name}(ptr noalias %context, i64 %chunk) {{"


def _module(e: FunctionWriter, inside: FunctionWriter, body: list[str]) -> str:
    """Tells of a function as a module; gives what calls it."""
    e.functions.append("")
    name, text = inside.name, module_text(e, inside, body)
    if e.name.startswith(NAMELESS):
        text, name = named(text, name)
    return called(e, inside, ("shared", name, text))


def module_text(e: FunctionWriter, inside: FunctionWriter, body: list[str]) -> str:
    text = "\n".join([*inside.functions, f"define {_heading(inside.name)}", *body])
    declared = [line for line in sorted(e.declared) if any(word in text for word in _NAME.findall(line)[:1])]
    return "\n".join([*declared, "", text])


def called(e: FunctionWriter, inside: FunctionWriter, slot: Slot) -> str:
    e.reach.meet(slot, inside.path)
    return e.let(f"inttoptr i64 {e.given(*slot)} to ptr")


def number_of_threads(e: FunctionWriter) -> str:
    """How many threads loops may run on."""
    table = e.let(f"inttoptr i64 {e.native('threads')} to ptr")
    place = e.let(f"getelementptr i64, ptr {table}, i64 {len(THREADS)}")
    return e.let(f"load atomic i64, ptr {place} monotonic, align 8")


def private_place(e: FunctionWriter, i: Instruction) -> Place:
    """Memory of the present chunk's, on the stack of its thread; the reference's own where that would be too much."""
    place = e.places[i.operands[0]]
    count = "1"
    for extent in place.extents:
        count = e.at_entry(f"mul i64 {count}, {extent.text}")
    fits = e.at_entry(f"icmp ule i64 {count}, {MOST_PRIVATE // place.type.dtype.bytes}")
    room = e.at_entry(f"select i1 {fits}, i64 {count}, i64 0")
    own = e.at_entry(f"alloca {stored(place.type.dtype)}, i64 {room}, align 64")
    pointer = e.at_entry(f"select i1 {fits}, ptr {own}, ptr {place.pointer}")
    return Place(pointer, place.type, place.extents, place.strides)


def _captured(captures: Captures, place: Place, pointer: str) -> Place:
    extents = tuple(Lanes(captures.take(x.text, "i64")) for x in place.extents)
    strides = tuple(Lanes(captures.take(x.text, "i64")) for x in place.strides)
    return Place(captures.take(pointer, "ptr"), place.type, extents, strides)


def _outer_values(i: Instruction) -> dict[Value, None]:
    """The values from around a loop that its body reads."""
    (region,) = i.regions
    inside = {*region.parameters}
    read: dict[Value, None] = {}
    for k in walk(region):
        inside.update(k.results)
        for v in k.operands:
            read[v] = None
        for inner in k.regions:
            inside.update(inner.parameters)
            read.update(dict.fromkeys(inner.results))
    return {v: None for v in read if v not in inside}


def _size(e: FunctionWriter, inside: FunctionWriter, captures: Captures, name: str) -> Lanes:
    return Lanes(captures.take(e.sizes[name].text, "i64") if e.direct else inside.argument("size", int(name[1:])))


def _sizes(i: Instruction, outer: Iterable[Value]) -> set[str]:
    """The sizes that the body of a loop needs, for itself or for where elements of references are, which it reads from around."""
    named = {k.params["size"] for k in walk(i.regions[0]) if "size" in k.params}
    extents = {extent for v in outer if isinstance(v.type, RefType) for extent in v.type.shape}
    return {name for name in named | extents if isinstance(name, str)}


def _shown(e: FunctionWriter, i: Instruction) -> dict[Value, str]:
    """Copies of the small buffers that a loop's body reads."""
    found = {}
    for value in _outer_values(i):
        t = value.type
        if isinstance(t, RefType) and _is_small(t) and [x.text for x in e.places[value].extents] == [str(x) for x in t.shape]:
            found[value] = e.slot(f"[{max(_numbers(t), 1)} x {stored(t.dtype)}]")
            _move(e, t, e.places[value].pointer, found[value])
    return found


def _is_small(t: RefType) -> bool:
    return all(isinstance(x, int) for x in t.shape) and _numbers(t) <= FEW and t.space == "global"


def _numbers(t: Any) -> int:
    return math.prod(x for x in t.shape if isinstance(x, int))


def _move(e: FunctionWriter, t: Any, source: str, target: str) -> None:
    name = stored(t.dtype)
    for k in range(_numbers(t)):
        origin, place = (e.let(f"getelementptr {name}, ptr {p}, i64 {k}") for p in (source, target))
        e.line(f"store {name} {e.let(f'load {name}, ptr {origin}, align {t.dtype.bytes}')}, ptr {place}, align {t.dtype.bytes}")
