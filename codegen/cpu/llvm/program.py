"""emit, for the CPU: a program with control flow as one LLVM function, the *driver*, whose kernels are functions beside it.

A driver is called like a kernel: ``i64 @name(ptr %args)``, with the buffers of the program as its references. Loops and branches
are LLVM's; rank-0 buffers are stack slots, which LLVM turns into registers once small kernels are in place of their calls.
Stacks are blocks of the C library's, freed wherever the driver returns. Each loop calls ``@tick`` now and then, which looks at
the clock and, a few times in a tenth of a second, asks whether the program is to be interrupted.

The status is 0, or the position from 1 of what failed in ``Driver.failures``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pullback.codegen.cpu.llvm.interrupt_poll import ASKED, TICK
from pullback.codegen.cpu.llvm.kernel import Emitter
from pullback.codegen.cpu.llvm.lanes import stored
from pullback.codegen.cpu.llvm.program_control_flow import branch, push, release, repeat, repeat_while, stack
from pullback.codegen.cpu.llvm.program_interface import Driver, numbers, on_stack
from pullback.codegen.cpu.llvm.program_text import Buffer, DriverText
from pullback.codegen.cpu.llvm.text import NO_MEMORY
from pullback.codegen.targets import Target
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import ArrayType, Extent, RefType, StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host
from pullback.ir.ops.program import (
    Alloc,
    Branch,
    Copy,
    Free,
    Launch,
    Push,
    Repeat,
    RepeatWhile,
    Row,
    Stack,
    StoreStackLength,
    View,
)
from pullback.ir.shapes.extents import product

NO_ROOM = ("MemoryError", "there is no memory for what a step computes with")
MOST_INLINED = 400
MOST_TOGETHER = 2000
"""So many lines a kernel may take that is put in place of its calls, which are in loops; and all of them together."""


def emit_program(
    program: Function,
    kernels: Mapping[str, Function],
    fresh: Sequence[Value],
    name: str,
    target: Target,
    writer: type[ProgramWriter] | None = None,
) -> Driver:
    """The driver of a program. ``kernels`` are scheduled for the CPU; ``fresh`` the buffers that are results."""
    return (writer or ProgramWriter)(program, kernels, fresh, name, target).run()


class ProgramWriter(DriverText):
    """The driver in the making."""

    def __init__(
        self,
        program: Function,
        kernels: Mapping[str, Function],
        fresh: Sequence[Value],
        name: str,
        target: Target,
    ) -> None:
        super().__init__()
        self.program = program
        self.kernels = kernels
        self.returned = fresh
        self.name = name
        self.target = target
        self.buffers: list[Value] = []
        self.hosts: list[Instruction] = []
        self.called: dict[str, tuple[str, tuple[tuple[Any, ...], ...], bool]] = {}
        self.small: set[str] = set()
        self.functions: list[str] = []
        self.cells: list[tuple[str, RefType, str]] = []
        self.limited: dict[Extent, None] = {}
        self.inner = Counter(i.params["kernel"] for i in _inner_launches(program.body))
        self.inlined = 0

    def run(self) -> Driver:
        for value in self.program.parameters:
            self.parameter(value)
        self.status = self.slot("i64")
        self.line(f"store i64 0, ptr {self.status}")
        self.block(self.program.body)
        self.line("br label %leave")
        self.lines += self.cold
        self.label("leave")
        for slots in self.stacks.values():
            release(self, slots)
        for cell, t, target in self.cells:
            self.move(t, cell, target)
        self.line(f"ret i64 {self.let(f'load i64, ptr {self.status}')}")
        body = [f"define i64 @{self.name}(ptr noalias %args) {{", "entry:", *self.entry, *self.lines, "}"]
        if self.ticks:
            self.functions.append(TICK)
            self.declared.update(dict.fromkeys(f"declare i64 @llvm.s{m}.i64(i64, i64)" for m in ("min", "max")))
        if self.ticks or self.hosts:
            self.functions.append(ASKED)
        text = "\n".join([*self.declared, "", *self.functions, *body, ""])
        return Driver(
            name=self.name,
            text=text,
            slots=tuple(self.slots),
            buffers=tuple(self.buffers),
            sizes=tuple(self.sizes),
            hosts=tuple(self.hosts),
            failures=tuple(self.failures),
            limited=tuple(self.limited),
        )

    # values

    def parameter(self, value: Value) -> None:
        self.buffers.append(value)
        position = len(self.buffers) - 1
        t: Any = value.type
        if isinstance(t, ArrayType):
            self.scalars[value] = self.argument("scalar", position, t.dtype.name)
            return
        self.places[value] = Buffer(self.address("pointer", position), position, t.rank if t.layout == "strided" else 0)

    # blocks

    def block(self, block: Block) -> None:
        for i in block.instructions:
            self.instruction(i)

    def instruction(self, i: Instruction) -> None:
        match i.op:
            case Alloc():
                self.alloc(i)
            case View():
                self.places[i.result] = self.places[i.operands[0]]
            case Launch():
                self.launch(i)
            case Host():
                self.host(i)
            case Copy():
                self.copy(i)
            case Row():
                self.row(i)
            case Stack():
                stack(self, i)
            case Push():
                push(self, i)
            case StoreStackLength():
                count = self.let(f"load i64, ptr {self.stacks[i.operands[0]].count}")
                self.line(f"store i64 {count}, ptr {self.places[i.operands[1]].pointer}")
            case Free():
                if isinstance(i.operands[0].type, StackType):
                    release(self, self.stacks[i.operands[0]])
            case Repeat():
                repeat(self, i)
            case RepeatWhile():
                repeat_while(self, i)
            case Branch():
                branch(self, i)
            case _:
                raise NotImplementedError(f"{i.op.name} has no LLVM spelling")

    def alloc(self, i: Instruction) -> None:
        """Small buffers on the stack; a result is written to its place at the end."""
        t: Any = i.result.type
        if on_stack(t):
            cell = self.slot(_cell(t))
            self.small.add(cell)
            self.places[i.result] = Buffer(cell)
            if i.result in self.returned:
                self.buffers.append(i.result)
                self.cells.append((cell, t, self.address("pointer", len(self.buffers) - 1)))
            return
        self.buffers.append(i.result)
        self.places[i.result] = Buffer(self.address("pointer", len(self.buffers) - 1))

    def move(self, t: Any, source: str, target: str) -> None:
        """The numbers of a small buffer to another."""
        name = stored(t.dtype.part)
        for k in range(numbers(t)):
            places = [self.let(f"getelementptr {name}, ptr {p}, i64 {k}") if k else p for p in (source, target)]
            found = self.let(f"load {name}, ptr {places[0]}, align {t.dtype.part.bytes}")
            self.line(f"store {name} {found}, ptr {places[1]}, align {t.dtype.part.bytes}")

    def copy(self, i: Instruction) -> None:
        source, target = i.operands
        place = self.places[target].pointer
        t: Any = target.type
        if source in self.scalars:
            self.line(f"store i{t.dtype.bits} {self.narrow(self.scalars[source], t)}, ptr {place}")
            return
        if on_stack(t):
            self.move(t, self.places[source].pointer, place)
            return
        origin = self.places[source].pointer
        if origin == place:
            return
        unlike, after = self.labels("copy", "copied")
        self.line(f"br i1 {self.let(f'icmp eq ptr {origin}, {place}')}, label %{after}, label %{unlike}")
        self.label(unlike)
        self.declared["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        self.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {origin}, i64 {self.bytes(t)}, i1 false)")
        self.line(f"br label %{after}")
        self.label(after)

    def narrow(self, bits: str, t: RefType) -> str:
        return bits if t.dtype.bits == 64 else self.let(f"trunc i64 {bits} to i{t.dtype.bits}")

    def row(self, i: Instruction) -> None:
        sequence, index = i.operands
        base = self.pointer_of(sequence)
        step = self.bytes(i.result.type)
        offset = self.let(f"mul i64 {self.integer(index)}, {step}")
        self.places[i.result] = Buffer(self.let(f"getelementptr i8, ptr {base}, i64 {offset}"))

    def pointer_of(self, value: Value) -> str:
        if isinstance(value.type, StackType):
            return self.let(f"load ptr, ptr {self.stacks[value].block}")
        return self.places[value].pointer

    # steps

    def launch(self, i: Instruction) -> None:
        name, slots, is_inlined = self.kernel(i.params["kernel"])
        given = []
        shown = {} if is_inlined else self.shown(i.operands)
        if any(slot[0] == "library" for slot in slots):
            self.limited.update(dict.fromkeys(map(_flat, i.params["sizes"])))
        for kind, *what in slots:
            match kind:
                case "pointer":
                    value = i.operands[what[0]]
                    given.append(f"ptr {shown.get(value, self.places[value].pointer)}")
                case "stride":
                    given.append(f"i64 {self.stride(i.operands[what[0]], what[1])}")
                case "scalar":
                    given.append(f"i64 {self.scalars[i.operands[what[0]]]}")
                case "size":
                    given.append(f"i64 {self.extent(_flat(i.params['sizes'][what[0]]))}")
                case _:
                    given.append(f"i64 {self.native(kind, *what)}")
        status = self.let(f"call i64 @{name}({', '.join(given)})")
        for value, pointer in shown.items():
            self.move(value.type, pointer, self.places[value].pointer)
        if any(slot[0] == "room" for slot in slots):
            (on,) = self.labels("on")
            out = self.leave((*NO_ROOM, str(i.loc)))
            self.line(f"br i1 {self.let(f'icmp eq i64 {status}, {NO_MEMORY}')}, label %{out}, label %{on}")
            self.label(on)
        failures = i.params.get("failures", ())
        if failures:
            base = len(self.failures)
            self.failures.extend(tuple(failure) for failure in failures)
            self.leave_if_failed(status, base)

    def shown(self, values: Sequence[Value]) -> dict[Value, str]:
        """Copies of the small buffers among values, for a function that is called: a buffer whose address nobody has is a
        register."""
        found = {}
        for value in values:
            if value in self.places and self.places[value].pointer in self.small:
                found[value] = self.slot(_cell(value.type))
                self.move(value.type, self.places[value].pointer, found[value])
        return found

    def stride(self, value: Value, axis: int) -> str:
        place = self.places[value]
        return str(value.type.dtype.bytes) if axis == place.axes else self.native("stride", place.position, axis)

    def kernel(self, name: str) -> tuple[str, tuple[tuple[Any, ...], ...], bool]:
        """The function of a kernel, what it takes, and whether it takes the place of its calls."""
        if name not in self.called:
            own = f"kernel{len(self.called)}"
            emitter = Emitter(self.kernels[name], own, self.target, direct="alwaysinline")
            emitted = emitter.run()
            size = len(emitter.lines) * self.inner[name]
            is_inlined = 0 < size <= MOST_INLINED and self.inlined + size <= MOST_TOGETHER
            if is_inlined:
                self.inlined += size
            else:
                emitter = Emitter(self.kernels[name], own, self.target, direct="noinline")
                emitted = emitter.run()
            self.declared.update(emitter.declared)
            self.functions.append(emitted.text)
            self.called[name] = emitted.name, emitted.slots, is_inlined
        return self.called[name]

    def host(self, i: Instruction) -> None:
        """A step in Python. A signal that waits is handled before: what a handler raises at the entry of a step would be lost."""
        interrupts = self.let(f"inttoptr i64 {self.native('poll')} to ptr")
        stops = self.let(f"call i64 @asked(ptr {interrupts})")
        out, (on,) = self.leave(None), self.labels("unasked")
        self.line(f"br i1 {self.let(f'icmp eq i64 {stops}, 0')}, label %{on}, label %{out}")
        self.label(on)
        table = self.slot(f"[{max(len(i.operands), 1)} x ptr]")
        shown = self.shown(i.operands)
        for k, value in enumerate(i.operands):
            pointer = shown.get(value, self.places[value].pointer)
            self.line(f"store ptr {pointer}, ptr {self.let(f'getelementptr ptr, ptr {table}, i64 {k}')}")
        callee = self.callee("host", len(self.hosts))
        self.hosts.append(i)
        status = self.let(f"call i64 {callee}(ptr {table})")
        self.failures.append(None)
        self.leave_if_failed(status, len(self.failures) - 1)
        for value, pointer in shown.items():
            self.move(value.type, pointer, self.places[value].pointer)

    # leaving

    def leave_if_failed(self, status: str, base: int) -> None:
        """Go to the end unless a status is 0; the program's is then larger by ``base``."""
        failed, on = self.labels("failed", "on")
        self.line(f"br i1 {self.let(f'icmp ne i64 {status}, 0')}, label %{failed}, label %{on}")
        code = self.fresh()
        self.cold += [
            f"{failed}:",
            f"  {code} = add i64 {status}, {base}",
            f"  store i64 {code}, ptr {self.status}",
            "  br label %leave",
        ]
        self.label(on)


def _inner_launches(block: Block) -> Iterator[Instruction]:
    """The launches in regions."""
    for i in block.instructions:
        for region in i.regions:
            yield from (k for k in walk(region) if isinstance(k.op, Launch))


def _cell(t: Any) -> str:
    """The LLVM type of a small buffer."""
    name = stored(t.dtype.part)
    return name if numbers(t) == 1 else f"[{numbers(t)} x {name}]"


def _flat(extents: Any) -> Extent:
    """One extent of a list of extents to multiply."""
    return product(extents) if isinstance(extents, tuple | list) else extents
