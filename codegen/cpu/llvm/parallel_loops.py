"""Emit loops over chunks, which the worker pool runs.

The body becomes a function ``i64 (ptr %context, i64 %chunk)`` that returns the status of a chunk. Captured values are passed
in a block of 64-bit slots. The ``run`` function of the argument slot ("threads",) distributes the chunks and returns the
status of the first chunk that failed. If the kernel has argument slots, the body reads these itself.

In a kernel of a driver, a single chunk runs in place, and the functions for several chunks are in further modules
(``Chunks``), which are compiled only for sizes that reach one of their functions. In an inlined kernel, such loops get
copies of small buffers, so that LLVM can keep the buffers themselves in registers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.cpu.llvm.accumulators import combined_with
from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, MemRef
from pullback.codegen.cpu.llvm.lanes import Lanes, element, stored
from pullback.codegen.cpu.llvm.text import NAMELESS, THREADS, Writer, named
from pullback.codegen.cpu.loops.parallelize import is_several, whole_range
from pullback.codegen.cpu.loops.reachability import Path, Several
from pullback.codegen.slots import Slot
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import MAX_PRIVATE_BYTES, For, If, Store

LONG, LONG_LOOP, LONG_BRANCH = 250, 100, 150
"""Thresholds from which code becomes a separate module: lines of a function, and instructions of a loop over chunks and of a
branch."""
_NAME = re.compile(r"[@!][\w.$-]+")
MOST_SMALL = 8
"""Largest number of elements of a small buffer."""


class Captures:
    """The values that a loop's body captures: their text and type in the enclosing function, and their names in the body.
    ``first``: the constants in the slots before theirs."""

    def __init__(self, inside: Writer, first: Sequence[int] = ()) -> None:
        self.inside = inside
        self.first = first
        self.names: dict[tuple[str, str], str] = {}

    def capture(self, text: str, type_: str) -> str:
        """Return the name of a captured value in the body."""
        if not text.startswith("%"):
            return text
        if (text, type_) not in self.names:
            at = self.inside.at_entry(f"getelementptr i64, ptr %context, i64 {len(self.first) + len(self.names)}")
            self.names[text, type_] = self.inside.at_entry(f"load {type_}, ptr {at}")
        return self.names[text, type_]

    def store_all(self, e: FunctionWriter) -> str:
        """Store the captured values in an array; return its address."""
        slot = e.slot(f"[{max(len(self.first) + len(self.names), 1)} x i64]")
        constants = [(str(value), "i64") for value in self.first]
        for k, (text, type_) in enumerate((*constants, *self.names)):
            e.line(f"store {type_} {text}, ptr {e.let(f'getelementptr i64, ptr {slot}, i64 {k}')}")
        return slot


def parallel_loop(e: FunctionWriter, i: Instruction) -> None:
    """Emit a loop over chunks, whose count may be below 1."""
    assert e.width == 1 and e.mask is None
    if e.chunks is None:
        run_chunks(e, *outlined(e, i), e.env[i.operands[0]].text)
    else:
        _few_chunks(e, i, lambda: None, lambda: None)


def is_reduction(e: FunctionWriter, i: Instruction, following: Instruction) -> bool:
    """Return whether two instructions are a loop over chunks of a driver's kernel and the loop that combines their results."""
    is_join = isinstance(following.op, For) and following.params.get("combine") is not None
    return e.chunks is not None and i.params.get("map") == "core" and is_join and following.operands[0] is i.operands[0]


def parallel_reduction(e: FunctionWriter, i: Instruction, join: Instruction) -> None:
    """Emit a loop over chunks and the loop that combines their results, where a single chunk's results stay in registers."""
    dtypes = [v.type.dtype for v in join.results]
    slots = [e.slot(element(d)) for d in dtypes]

    def keep(values: Iterable[str]) -> None:
        for value, slot, dtype in zip(values, slots, dtypes, strict=True):
            e.line(f"store {element(dtype)} {value}, ptr {slot}")

    def keep_of_loop() -> None:
        e.block(Block((), (join,), ()))
        keep(e.env[v].text for v in join.results)

    def keep_of_chunk() -> None:
        (chunk,), (region,) = i.regions, join.regions
        stored_values = {k.operands[1]: k.operands[0] for k in chunk.instructions if isinstance(k.op, Store)}
        e.env.update((k.result, e.env[stored_values[k.operands[0]]]) for k in region.instructions)
        start = [e.env[v].text for v in join.operands[1:]]
        keep(combined_with(e, join.params["combine"], dtypes, start, [e.env[v].text for v in region.results]))

    keep(e.env[v].text for v in join.operands[1:])
    _few_chunks(e, i, keep_of_loop, keep_of_chunk)
    for value, slot, dtype in zip(join.results, slots, dtypes, strict=True):
        e.env[value] = Lanes(e.let(f"load {element(dtype)}, ptr {slot}"))


def _few_chunks(e: FunctionWriter, i: Instruction, after_several: Callable[[], None], after_one: Callable[[], None]) -> None:
    """Emit a loop over chunks in a kernel of a driver, and what follows several chunks and what follows a single one."""
    count = e.env[i.operands[0]].text
    condition = is_several(i.operands[0], {v: k for k in e.kernel.body.instructions for v in k.results})
    e.count += 1
    parallel, at_most_one, single, after = (f"{word}{e.count}" for word in ("several", "one", "alone", "after"))
    test = e.let(f"icmp sgt i64 {count}, 1") if condition is None else e.env[condition].text
    e.line(f"br i1 {test}, label %{parallel}, label %{at_most_one if condition is None else single}")
    e.label(parallel)
    assert e.chunks is not None
    copies = _copy_small_buffers(e, i) if e.inlined else {}
    function, captures = e.chunks.function(e, i, copies)
    run_chunks(e, function, captures, count)
    for value, pointer in copies.items():
        _copy(e, value.type, pointer, e.memrefs[value].pointer)
    after_several()
    e.line(f"br label %{after}")
    if condition is None:
        e.label(at_most_one)
        e.line(f"br i1 {e.let(f'icmp eq i64 {count}, 1')}, label %{single}, label %{after}")
    e.label(single)
    _inline(e, i, after_one)
    e.line(f"br label %{after}")
    e.label(after)


def run_chunks(e: FunctionWriter, function: str, captures: Captures, count: str) -> None:
    """Emit a call that runs a function for ``count`` chunks on the worker pool."""
    context = captures.store_all(e)
    threads = e.let(f"inttoptr i64 {e.native('threads')} to ptr")
    run = e.let(f"load ptr, ptr {threads}")
    e.join_status(e.let(f"call i64 {run}(ptr {threads}, ptr {function}, ptr {context}, i64 {count})"))


def _inline(e: FunctionWriter, i: Instruction, then: Callable[[], None]) -> None:
    """Emit the body of the loop in place, for chunk 0, and what follows it."""
    (region,) = i.regions
    saved = e.env, e.splats, e.memrefs
    e.env, e.splats, e.memrefs = {**e.env, region.parameters[0]: Lanes("0")}, dict(e.splats), dict(e.memrefs)
    if (iterations := whole_range(i)) is not None:
        first, part, count = iterations
        e.env.update({first: Lanes("0"), part: e.env[count]})
        region = replace(region, instructions=tuple(k for k in region.instructions if not {first, part}.intersection(k.results)))
    e.is_single_chunk = True
    e.block(region)
    e.is_single_chunk = False
    then()
    e.env, e.splats, e.memrefs = saved


class Chunks:
    """The loops over chunks of a kernel of a driver.

    ``slot``: the argument slot that holds the address of a function, which runs a chunk of the loop whose number is in the first
    slot of its context; 0 if the sizes reach no such loop. ``start``: the number of the first loop; ``functions``: the names and
    texts of the bodies; ``paths``: what holds whenever one of them runs.
    """

    def __init__(self, slot: Slot, start: int) -> None:
        self.slot, self.start = slot, start
        self.functions: list[tuple[str, str]] = []
        self.paths: list[Path] = []

    def function(self, e: FunctionWriter, i: Instruction, copies: dict[Value, str]) -> tuple[str, Captures]:
        """Emit the body of a loop; return the address of the function that runs it and the captures of the body."""
        path = (*e.path, Several(i.operands[0]))
        index = self.start + len(self.functions)
        inside, captures = begin_function(e, i, copies, path, f"{e.name}_{index}", [index])
        body = finish_function(inside, i)
        text = "\n".join([*inside.functions, f"define internal {_heading(inside.name)}", *body])
        self.functions.append((inside.name, text))
        self.paths.append(path)
        return e.let(f"inttoptr i64 {e.native(*self.slot)} to ptr"), captures


def chunks_module(functions: Mapping[int, tuple[str, str]], declared: Iterable[str]) -> tuple[str, str]:
    """Return the text and the name of a function that runs chunks of loops. ``functions``: the names and texts of their bodies by
    the numbers of the loops; ``declared``: declarations, of which the bodies use some."""
    cases = "\n".join(f"    i64 {k}, label %run{k}" for k in functions)
    calls = "".join(
        f"run{k}:\n  %status{k} = call i64 @{name}(ptr %context, i64 %chunk)\n  ret i64 %status{k}\n"
        for k, (name, _) in functions.items()
    )
    entry = f"entry:\n  %loop = load i64, ptr %context\n  switch i64 %loop, label %none [\n{cases}\n  ]\n"
    text = "\n".join(text for _, text in functions.values())
    text += f"\ndefine {_heading(NAMELESS)}\n{entry}{calls}none:\n  unreachable\n}}\n"
    return named("\n".join([*_used(declared, text), "", text]), NAMELESS)


def outlined(e: FunctionWriter, i: Instruction) -> tuple[str, Captures]:
    """Emit a loop's body as a function; return its address and its captures.

    A long body in a kernel with several loops becomes a separate module, as do loops emitted after it or deferred with it:
    modules are compiled in parallel, and the rest of the kernel does little but call them.
    """
    inside, captures, body = _emit_function(e, i, (*e.path, i.operands[0]))
    is_long = len(body) >= LONG or bool(e.in_own_module) or any(other.size >= LONG_LOOP for other in e.deferred)
    if not e.has_several_parallel_loops or any(inside.functions) or not is_long:
        e.functions.append("\n".join([*inside.functions, f"define internal {_heading(inside.name)}", *body]))
        return f"@{inside.name}", captures
    e.in_own_module.add(i)
    return _module(e, inside, body), captures


def long_branches(body: Block) -> set[Instruction]:
    """Return the long branches of a body, if it has several."""
    branches: set[Instruction] = set()
    if sum(1 for _ in walk(body)) >= 2 * LONG_BRANCH:
        long = {i for i in body.instructions if isinstance(i.op, If) and sum(1 for _ in walk(i.regions[0])) >= LONG_BRANCH}
        branches = long if len(long) > 1 else set().union(*(long_branches(r) for i in body.instructions for r in i.regions))
    return branches


def run_outlined_branch(e: FunctionWriter, i: Instruction) -> None:
    """Emit a branch of a loop's body as a call of a separate module."""
    inside, captures, body = _emit_function(e, i, e.path)
    callee, context = _module(e, inside, body), captures.store_all(e)
    e.join_status(e.let(f"call i64 {callee}(ptr {context}, i64 0)"))


def _emit_function(e: FunctionWriter, i: Instruction, path: Path) -> tuple[FunctionWriter, Captures, list[str]]:
    """Emit a region as a function of a chunk's index; return its writer, its captures and its lines.

    ``path``: the conditions that are nonzero whenever it runs.
    """
    inside, captures = begin_function(e, i, {}, path, f"{e.name}_{len(e.functions)}")
    return inside, captures, finish_function(inside, i)


def begin_function(
    e: FunctionWriter, i: Instruction, copies: dict[Value, str], path: Path, name: str, first: Sequence[int] = ()
) -> tuple[FunctionWriter, Captures]:
    """Return the writer and captures of a region's function before its body is emitted; native functions are captured later.
    ``copies``: the addresses of copies of references; ``first``: as for ``Captures``."""
    inside = e.nested(name)
    inside.path = path
    captures = Captures(inside, first)
    inside.native_source = lambda *slot: captures.capture(e.native_argument(*slot), "i64")
    if not e.direct:
        block, positions = e.arguments or ("%args", {slot: k for k, slot in enumerate(e.slots)})
        inside.arguments = captures.capture(block, "ptr"), positions
    outer = _outer_values(i)
    inside.sizes = {name: _size(e, inside, captures, name) for name in sorted(_sizes(i, outer)) if name in e.sizes}
    inside.status = inside.slot("i64")
    inside.line(f"store i64 0, ptr {inside.status}")
    positions_of_parameters = {} if e.direct else {value: k for k, value in enumerate(e.kernel.parameters)}
    for value in outer:
        if value in positions_of_parameters:
            inside.parameter(positions_of_parameters[value], value)
            continue
        if value in e.memrefs:
            memref = e.memrefs[value]
            inside.memrefs[value] = _captured(captures, memref, copies.get(value, memref.pointer))
        else:
            lanes = e.env[value]
            inside.env[value] = Lanes(captures.capture(lanes.text, element(value.type.dtype)))
    inside.add_extents()
    inside.outlined_branches = set() if e.direct else long_branches(i.regions[0])
    inside.env.update((parameter, Lanes("%chunk")) for parameter in i.regions[0].parameters)
    return inside, captures


def finish_function(inside: FunctionWriter, i: Instruction) -> list[str]:
    """Emit the body of a function that ``begin_function`` returned; return its lines."""
    inside.block(i.regions[0])
    inside.end()
    return ["entry:", *inside.entry, *inside.lines, "}", ""]


def _heading(name: str) -> str:
    """Return the first line of the function's definition."""
    return f"i64 @{name}(ptr noalias %context, i64 %chunk) {{"


def _module(e: FunctionWriter, inside: FunctionWriter, body: list[str]) -> str:
    """Emit a function as a separate module; return its address for a call."""
    e.functions.append("")
    name, text = inside.name, module_text(e, inside, body)
    if e.name.startswith(NAMELESS):
        text, name = named(text, name)
    return address_of_module(e, inside, ("shared", name, text))


def module_text(e: FunctionWriter, inside: FunctionWriter, body: list[str]) -> str:
    """Return the module of a function, with the declarations it uses."""
    text = "\n".join([*inside.functions, f"define {_heading(inside.name)}", *body])
    return "\n".join([*_used(e.declared, text), "", text])


def _used(declared: Iterable[str], text: str) -> list[str]:
    """Return the declarations that a text uses."""
    words = set(_NAME.findall(text))
    return [line for line in sorted(declared) if any(word in words for word in _NAME.findall(line)[:1])]


def address_of_module(e: FunctionWriter, inside: FunctionWriter, slot: Slot) -> str:
    """Return the address of a function in another module, which is reported to ``reach``."""
    e.reach.record(slot, inside.path)
    return e.let(f"inttoptr i64 {e.native_argument(*slot)} to ptr")


def thread_count(e: FunctionWriter) -> str:
    """Return the number of threads that loops may run on."""
    table = e.let(f"inttoptr i64 {e.native('threads')} to ptr")
    address = e.let(f"getelementptr i64, ptr {table}, i64 {len(THREADS)}")
    return e.let(f"load atomic i64, ptr {address} monotonic, align 8")


def private_memref(e: FunctionWriter, i: Instruction) -> MemRef:
    """Allocate memory of the current chunk on its thread's stack; the reference's own memory is used if it is too large."""
    memref = e.memrefs[i.operands[0]]
    count = "1"
    for extent in memref.extents:
        count = e.at_entry(f"mul i64 {count}, {extent.text}")
    fits = e.at_entry(f"icmp ule i64 {count}, {MAX_PRIVATE_BYTES // memref.type.dtype.bytes}")
    stack_count = e.at_entry(f"select i1 {fits}, i64 {count}, i64 0")
    on_stack = e.at_entry(f"alloca {stored(memref.type.dtype)}, i64 {stack_count}, align 64")
    pointer = e.at_entry(f"select i1 {fits}, ptr {on_stack}, ptr {memref.pointer}")
    return MemRef(pointer, memref.type, memref.extents, memref.strides)


def _captured(captures: Captures, memref: MemRef, pointer: str) -> MemRef:
    """Return a captured reference, whose memory is at ``pointer``."""
    extents = tuple(Lanes(captures.capture(x.text, "i64")) for x in memref.extents)
    strides = tuple(Lanes(captures.capture(x.text, "i64")) for x in memref.strides)
    return MemRef(captures.capture(pointer, "ptr"), memref.type, extents, strides)


def _outer_values(i: Instruction) -> dict[Value, None]:
    """Return the values that a loop's body uses from outside."""
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
    """Return a size in the body."""
    return Lanes(captures.capture(e.sizes[name].text, "i64") if e.direct else inside.argument("size", int(name[1:])))


def _sizes(i: Instruction, outer: Iterable[Value]) -> set[str]:
    """Return the names of the sizes that a loop's body uses, directly or in the extents of references from outside."""
    named = {k.params["size"] for k in walk(i.regions[0]) if "size" in k.params}
    extents = {extent for v in outer if isinstance(v.type, RefType) for extent in v.type.shape}
    return {name for name in named | extents if isinstance(name, str)}


def _copy_small_buffers(e: FunctionWriter, i: Instruction) -> dict[Value, str]:
    """Copy the small buffers that a loop's body uses; return the address of each copy."""
    copies = {}
    for value in _outer_values(i):
        t = value.type
        if isinstance(t, RefType) and _is_small(t) and [x.text for x in e.memrefs[value].extents] == [str(x) for x in t.shape]:
            copies[value] = e.slot(f"[{max(_static_size(t), 1)} x {stored(t.dtype)}]")
            _copy(e, t, e.memrefs[value].pointer, copies[value])
    return copies


def _is_small(t: RefType) -> bool:
    """Return whether a reference has at most ``MOST_SMALL`` elements."""
    return all(isinstance(x, int) for x in t.shape) and _static_size(t) <= MOST_SMALL and t.space == "global"


def _static_size(t: Any) -> int:
    """Return the product of the static extents of a reference."""
    return math.prod(x for x in t.shape if isinstance(x, int))


def _copy(e: FunctionWriter, t: Any, source: str, target: str) -> None:
    """Copy the elements of a small buffer."""
    name = stored(t.dtype)
    for k in range(_static_size(t)):
        origin, destination = (e.let(f"getelementptr {name}, ptr {p}, i64 {k}") for p in (source, target))
        e.line(
            f"store {name} {e.let(f'load {name}, ptr {origin}, align {t.dtype.bytes}')}, ptr {destination}, align {t.dtype.bytes}"
        )
