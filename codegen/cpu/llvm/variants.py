"""Emit variants: of the several loops over chunks of a kernel, the sizes select one; each becomes a separate module.

Variants that the current sizes reach are emitted first, the longest before others, so that a thread compiles it while more is
emitted; the others are emitted when a call reaches them (``LazyText``). A variant captures the same values in the same order
in both cases. A long variant that calls functions moves its own vector loops to further modules, which are optimised fully;
the variant itself, which only drives them, is compiled quickly (``TIERED``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, OutlinedLoop
from pullback.codegen.cpu.llvm.parallel_loops import (
    LONG_LOOP,
    Captures,
    address_of_module,
    begin_function,
    finish_function,
    long_branches,
    module_text,
    outlined,
    run_chunks,
)  # fmt: skip
from pullback.codegen.cpu.llvm.shared_functions import native_functions_of
from pullback.codegen.cpu.llvm.text import NAMELESS, TIERED, LazyText
from pullback.codegen.cpu.loops.reachability import Path, Reach
from pullback.codegen.slots import Slot
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.functions import Call
from pullback.ir.ops.kernel.kernel import For, Load, Store


def defer_loop(e: FunctionWriter, i: Instruction) -> None:
    """Defer a loop over chunks of a kernel with several until all code between these loops is emitted."""
    e.deferred.append(Variant(e, i))
    e.lines.append("")


def write_deferred(e: FunctionWriter) -> None:
    """Emit the deferred loops."""
    for deferred in sorted(e.deferred, key=lambda deferred: (not deferred.is_reached(e.reach), -deferred.size)):
        deferred.write(e)


class Variant:
    """A deferred loop with the state of the writer at its position. ``index``: its ordinal among the loops."""

    def __init__(self, e: FunctionWriter, i: Instruction) -> None:
        self.i, self.line, self.index = i, len(e.lines), len(e.deferred)
        (self.body,) = i.regions
        self.size = sum(1 for _ in walk(self.body))
        self.env, self.splats, self.memrefs = dict(e.env), dict(e.splats), dict(e.memrefs)
        self.available, self.path = dict(e.available), e.path

    @property
    def body_path(self) -> Path:
        """Return the conditions that are nonzero whenever the loop's body runs."""
        return (*self.path, self.i.operands[0])

    def is_reached(self, reach: Reach) -> bool:
        """Return whether the current sizes may reach the loop."""
        return reach.reaches(self.body_path)

    def write(self, e: FunctionWriter) -> None:
        """Emit the loop at its position."""
        lines, e.lines = e.lines, []
        e.env, e.splats, e.memrefs, e.available, e.path = self.env, self.splats, self.memrefs, self.available, self.path
        needed = self.needed_natives(e)
        function, captures = outlined(e, self.i) if needed is None else self.emit_module(e, needed)
        run_chunks(e, function, captures, e.env[self.i.operands[0]].text)
        lines[self.line], e.lines = "\n".join(e.lines), lines

    def needed_natives(self, e: FunctionWriter) -> list[tuple[Slot, Path]] | None:
        """Return the native functions that the body needs; None if they are not known yet, or the body is not exactly one
        module."""
        is_module = any(other.size >= LONG_LOOP for other in e.deferred) and not long_branches(self.body)
        return native_functions_of(e, self.body, self.body_path) if is_module else None

    def emit_module(self, e: FunctionWriter, needed: Sequence[tuple[Slot, Path]]) -> tuple[str, Captures]:
        """Emit the body as a module; return its address and its captures, which include all needed native functions."""
        name = f"form{self.index}" if e.name.startswith(NAMELESS) else f"{e.name}_form{self.index}"
        inside, captures = begin_function(e, self.i, {}, self.body_path, name)
        text = LazyText(lambda: write())
        own_loops = own_vector_loops(self.body) if self.size >= LONG_LOOP else ()
        inside.outlined_loops = {loop: OutlinedLoop(f"{name}_{k}", self.body_path, text) for k, loop in enumerate(own_loops)}
        needed = [*needed, *((part.slot, part.path) for part in inside.outlined_loops.values())]
        for slot, _ in needed:
            inside.native_argument(*slot)
        count = len(captures.names)

        def write() -> str:
            body = finish_function(inside, self.i)
            assert len(captures.names) == count, f"{name} needs {list(captures.names)[count:]}"
            assert all(part.written for part in inside.outlined_loops.values()), f"{name} leaves out work of its own"
            return (TIERED if own_loops else "") + module_text(e, inside, body)

        e.in_own_module.add(self.i)
        if self.is_reached(e.reach):
            for text_to_write in (text, *(part.slot[2] for part in inside.outlined_loops.values())):
                str(text_to_write)
        for slot, path in needed:
            if slot[0] == "shared":
                e.reach.record(slot, path)
        return address_of_module(e, inside, ("shared", name, text)), captures


def own_vector_loops(body: Block) -> Sequence[Instruction]:
    """Return the vector loops that do all the work of a body that its callees do not do.

    None are returned if the body calls nothing, or if floats are computed or moved outside such loops.
    """
    if not any(isinstance(i.op, Call) for i in walk(body)):
        return ()
    producers = {v: i for i in walk(body) for v in i.results}
    loops: list[Instruction] = []

    def look(block: Block) -> bool:
        for i in block.instructions:
            nested = [i, *(k for r in i.regions for k in walk(r))]
            has_vectors = any(_is_vector_loop(k, producers) for k in nested)
            if _is_single_vector(i, producers) or not (has_vectors or any(map(_moves_floats, nested))):
                continue
            if has_vectors and isinstance(i.op, For) and not i.results and not any(isinstance(k.op, Call) for k in nested):
                loops.append(i)
            elif _moves_floats(i) or _is_vector_loop(i, producers) or not all(map(look, i.regions)):
                return False
        return True

    return loops if look(body) else ()


def _moves_floats(i: Instruction) -> bool:
    """Return whether an instruction computes or moves a float."""
    if isinstance(i.op, Elementwise | Load):
        return any(v.type.dtype.is_inexact for v in i.results)
    return isinstance(i.op, Store) and i.operands[0].type.dtype.is_inexact


def _is_vector_loop(i: Instruction, producers: Mapping[Value, Instruction]) -> bool:
    """Return whether an instruction is a vector loop of more than one vector."""
    return i.params.get("map") == "vector" and not _is_single_vector(i, producers)


def _is_single_vector(i: Instruction, producers: Mapping[Value, Instruction]) -> bool:
    """Return whether an instruction is a loop of a single vector."""
    if i.params.get("map") != "vector":
        return False
    count = producers.get(i.operands[0])
    return count is not None and isinstance(count.op, Constant) and count.params["value"] == i.params.get("multiple")


def run_outlined_loop(e: FunctionWriter, i: Instruction) -> None:
    """Emit a call of an outlined vector loop of a variant, and its module."""
    part = e.outlined_loops[i]
    region = Instruction(OPS["if"], (), (), {}, (Block((), (i,), ()),), i.loc)
    inside, captures = begin_function(e, region, {}, part.path, part.name)
    inside.outlined_branches = set()
    part.written = module_text(e, inside, finish_function(inside, region))
    callee = address_of_module(e, inside, part.slot)
    e.join_status(e.let(f"call i64 {callee}(ptr {captures.store_all(e)}, i64 0)"))
