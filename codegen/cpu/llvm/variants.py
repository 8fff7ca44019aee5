"""Forms in emitted LLVM code: the loops over chunks of a kernel that has several, of which sizes choose, each in a module.

What the sizes at hand reach is written first, the longest before others, so that a thread compiles it while more is written; what
they do not reach is written when a call does (``Unwritten``). So a form is given the same, in the same order, whoever needs it
first. A long one that calls functions leaves its own work, loops of vectors, to modules too: these are compiled well, and the
form, which only drives them, quickly (``TIERED``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Part
from pullback.codegen.cpu.llvm.parallel_loops import (
    LONG_LOOP,
    Captures,
    begun,
    called,
    finished,
    long_branches,
    module_text,
    outlined,
    share_out,
)  # fmt: skip
from pullback.codegen.cpu.llvm.shared_functions import natives
from pullback.codegen.cpu.llvm.text import NAMELESS, TIERED, Unwritten
from pullback.codegen.cpu.loops.reachability import Path, Reach
from pullback.codegen.slots import Slot
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.functions import Call
from pullback.ir.ops.kernel.kernel import For, Load, Store


def wait(e: FunctionWriter, i: Instruction) -> None:
    """A loop over chunks of a kernel that has several: it is written when all that runs between them is there."""
    e.waiting.append(Waiting(e, i))
    e.lines.append("")


def write_waiting(e: FunctionWriter) -> None:
    """Write the loops that wait."""
    for waiting in sorted(e.waiting, key=lambda waiting: (not waiting.is_reached(e.reach), -waiting.size)):
        waiting.write(e)


class Waiting:
    """Such a loop, with all that is known where it runs. ``number``: its own among the loops."""

    def __init__(self, e: FunctionWriter, i: Instruction) -> None:
        self.i, self.line, self.number = i, len(e.lines), len(e.waiting)
        (self.body,) = i.regions
        self.size = sum(1 for _ in walk(self.body))
        self.env, self.splats, self.places = dict(e.env), dict(e.splats), dict(e.places)
        self.known, self.path = dict(e.known), e.path

    @property
    def inside(self) -> Path:
        """What has to be other than 0 for it to run."""
        return (*self.path, self.i.operands[0])

    def is_reached(self, reach: Reach) -> bool:
        return reach.reaches(self.inside)

    def write(self, e: FunctionWriter) -> None:
        lines, e.lines = e.lines, []
        e.env, e.splats, e.places, e.known, e.path = self.env, self.splats, self.places, self.known, self.path
        needed = self.needed(e)
        function, captures = outlined(e, self.i, {}) if needed is None else self.form(e, needed)
        share_out(e, function, captures, e.env[self.i.operands[0]].text)
        lines[self.line], e.lines = "\n".join(e.lines), lines

    def needed(self, e: FunctionWriter) -> list[tuple[Slot, Path]] | None:
        """The native functions that the body needs; None if that does not show, or it is no module of its own, or several."""
        is_module = any(waiting.size >= LONG_LOOP for waiting in e.waiting) and not long_branches(self.body)
        return natives(e, self.body, self.inside) if is_module else None

    def form(self, e: FunctionWriter, needed: Sequence[tuple[Slot, Path]]) -> tuple[str, Captures]:
        """What calls the module of the body, and what it captures, which are all of these native functions."""
        name = f"form{self.number}" if e.name.startswith(NAMELESS) else f"{e.name}_form{self.number}"
        inside, captures = begun(e, self.i, {}, self.inside, name)
        text = Unwritten(lambda: write())
        own = own_work(self.body) if self.size >= LONG_LOOP else ()
        inside.parts = {loop: Part(f"{name}_{k}", self.inside, text) for k, loop in enumerate(own)}
        needed = [*needed, *((part.slot, part.path) for part in inside.parts.values())]
        for what, _ in needed:
            inside.given(*what)
        count = len(captures.names)

        def write() -> str:
            body = finished(inside, self.i)
            assert len(captures.names) == count, f"{name} needs {list(captures.names)[count:]}"
            assert all(part.written for part in inside.parts.values()), f"{name} leaves out work of its own"
            return (TIERED if own else "") + module_text(e, inside, body)

        e.elsewhere.add(self.i)
        if self.is_reached(e.reach):
            for each in (text, *(part.slot[2] for part in inside.parts.values())):
                str(each)
        for what, path in needed:
            if what[0] == "shared":
                e.reach.meet(what, path)
        return called(e, inside, ("shared", name, text)), captures


def own_work(body: Block) -> Sequence[Instruction]:
    """The loops in which all that takes time is done that no called function does; none if nothing is called, or numbers are
    computed or moved outside such loops."""
    if not any(isinstance(i.op, Call) for i in walk(body)):
        return ()
    made = {v: i for i in walk(body) for v in i.results}
    found: list[Instruction] = []

    def look(block: Block) -> bool:
        for i in block.instructions:
            inside = [i, *(k for r in i.regions for k in walk(r))]
            has_vectors = any(_is_of_vectors(k, made) for k in inside)
            if _is_one_vector(i, made) or not (has_vectors or any(map(_is_of_numbers, inside))):
                continue
            if has_vectors and isinstance(i.op, For) and not i.results and not any(isinstance(k.op, Call) for k in inside):
                found.append(i)
            elif _is_of_numbers(i) or _is_of_vectors(i, made) or not all(map(look, i.regions)):
                return False
        return True

    return found if look(body) else ()


def _is_of_numbers(i: Instruction) -> bool:
    """Whether something computes a float, or moves one."""
    if isinstance(i.op, Elementwise | Load):
        return any(v.type.dtype.is_inexact for v in i.results)
    return isinstance(i.op, Store) and i.operands[0].type.dtype.is_inexact


def _is_of_vectors(i: Instruction, made: Mapping[Value, Instruction]) -> bool:
    return i.params.get("map") == "vector" and not _is_one_vector(i, made)


def _is_one_vector(i: Instruction, made: Mapping[Value, Instruction]) -> bool:
    """Whether something is a loop of a single vector."""
    if i.params.get("map") != "vector":
        return False
    count = made.get(i.operands[0])
    return count is not None and isinstance(count.op, Constant) and count.params["value"] == i.params.get("multiple")


def run_part(e: FunctionWriter, i: Instruction) -> None:
    """Call a loop of a form's own work."""
    part = e.parts[i]
    alone = Instruction(OPS["if"], (), (), {}, (Block((), (i,), ()),), i.loc)
    inside, captures = begun(e, alone, {}, part.path, part.name)
    inside.apart_branches = set()
    part.written = module_text(e, inside, finished(inside, alone))
    callee = called(e, inside, part.slot)
    e.join_status(e.let(f"call i64 {callee}(ptr {captures.block(e)}, i64 0)"))
