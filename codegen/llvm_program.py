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
from dataclasses import dataclass
from typing import Any

from pullback.codegen.driver import Driver, Failure, numbers, on_stack
from pullback.codegen.lanes import stored
from pullback.codegen.llvm import Emitter
from pullback.codegen.llvm_text import Extents
from pullback.codegen.tick import ASKED, TICK
from pullback.ir.extents import product
from pullback.ir.ops.host import Host
from pullback.ir.ops.program import (
    Alloc,
    Branch,
    Copy,
    Free,
    Launch,
    Measure,
    Push,
    Repeat,
    RepeatWhile,
    Row,
    Stack,
    View,
)
from pullback.ir.structure import Block, Function, Instruction, Value, walk
from pullback.ir.types import ArrayType, Extent, RefType, Shape, StackType

FIRST_TICK = 8
MOST_INLINED = 400
MOST_TOGETHER = 2000
"""So many lines a kernel may take that is put in place of its calls, which are in loops; and all of them together."""
LEAST_BLOCK = 1024
"""Bytes of a stack's first block."""

NO_MEMORY = ("MemoryError", "there is no memory for what a loop keeps for its gradient")


def emit_program(
    program: Function,
    kernels: Mapping[str, Function],
    fresh: Sequence[Value],
    name: str,
    vector_bytes: int,
    has_fma: bool,
    cpu: str = "",
    writer: type[ProgramWriter] | None = None,
) -> Driver:
    """The driver of a program. ``kernels`` are scheduled for the CPU; ``fresh`` the buffers that are results."""
    return (writer or ProgramWriter)(program, kernels, fresh, name, vector_bytes, has_fma, cpu).run()


@dataclass(frozen=True, eq=False)
class _Buffer:
    """Where a buffer is. ``position`` and ``axes`` of a parameter: its number, and how many strides it has."""

    pointer: str
    position: int = -1
    axes: int = 0


@dataclass(frozen=True, eq=False)
class _Stack:
    """A stack: slots with the address of its block, the count of its values, and how many fit."""

    block: str
    count: str
    room: str


class ProgramWriter(Extents):
    """The driver in the making."""

    def __init__(
        self,
        program: Function,
        kernels: Mapping[str, Function],
        fresh: Sequence[Value],
        name: str,
        vector_bytes: int,
        has_fma: bool,
        cpu: str,
    ) -> None:
        super().__init__()
        self.program = program
        self.kernels = kernels
        self.returned = fresh
        self.name = name
        self.vector_bytes, self.has_fma, self.cpu = vector_bytes, has_fma, cpu
        self.buffers: list[Value] = []
        self.sizes: dict[Extent, str] = {}
        self.hosts: list[Instruction] = []
        self.failures: list[Failure] = []
        self.places: dict[Value, _Buffer] = {}
        self.scalars: dict[Value, str] = {}
        self.stacks: dict[Value, _Stack] = {}
        self.called: dict[str, tuple[str, tuple[tuple[Any, ...], ...], bool]] = {}
        self.small: set[str] = set()
        self.functions: list[str] = []
        self.cold: list[str] = []
        self.cells: list[tuple[str, RefType, str]] = []
        self.limited: dict[Extent, None] = {}
        self.inner = Counter(i.params["kernel"] for i in _inner_launches(program.body))
        self.inlined = 0
        self.ticks = False

    def run(self) -> Driver:
        for value in self.program.parameters:
            self.parameter(value)
        self.status = self.slot("i64")
        self.line(f"store i64 0, ptr {self.status}")
        self.block(self.program.body)
        self.line("br label %leave")
        self.lines += self.cold
        self.label("leave")
        for stack in self.stacks.values():
            self.release(stack)
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
        self.places[value] = _Buffer(self.address("pointer", position), position, t.rank if t.layout == "strided" else 0)

    def size(self, name: str) -> str:
        if name not in self.sizes:
            self.sizes[name] = self.argument("size", len(self.sizes))
        return self.sizes[name]

    def elements(self, shape: Shape) -> str:
        return self.extent(product(shape))

    def bytes(self, t: Any) -> str:
        """The size of a buffer."""
        return self.extent(product((*t.shape, t.dtype.bytes)))

    def integer(self, value: Value) -> str:
        """The i64 in a buffer or a scalar."""
        return self.scalars[value] if value in self.scalars else self.let(f"load i64, ptr {self.places[value].pointer}")

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
                self.stack(i)
            case Push():
                self.push(i)
            case Measure():
                count = self.let(f"load i64, ptr {self.stacks[i.operands[0]].count}")
                self.line(f"store i64 {count}, ptr {self.places[i.operands[1]].pointer}")
            case Free():
                if isinstance(i.operands[0].type, StackType):
                    self.release(self.stacks[i.operands[0]])
            case Repeat():
                self.repeat(i)
            case RepeatWhile():
                self.repeat_while(i)
            case Branch():
                self.branch(i)
            case _:
                raise NotImplementedError(f"{i.op.name} has no LLVM spelling")

    def alloc(self, i: Instruction) -> None:
        """Small buffers on the stack; a result is written to its place at the end."""
        t: Any = i.result.type
        if on_stack(t):
            cell = self.slot(_cell(t))
            self.small.add(cell)
            self.places[i.result] = _Buffer(cell)
            if i.result in self.returned:
                self.buffers.append(i.result)
                self.cells.append((cell, t, self.address("pointer", len(self.buffers) - 1)))
            return
        self.buffers.append(i.result)
        self.places[i.result] = _Buffer(self.address("pointer", len(self.buffers) - 1))

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
        self.places[i.result] = _Buffer(self.let(f"getelementptr i8, ptr {base}, i64 {offset}"))

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
            emitter = Emitter(self.kernels[name], own, self.vector_bytes, self.has_fma, self.cpu, direct="alwaysinline")
            emitted = emitter.run()
            size = len(emitter.lines) * self.inner[name]
            is_inlined = 0 < size <= MOST_INLINED and self.inlined + size <= MOST_TOGETHER
            if is_inlined:
                self.inlined += size
            else:
                emitter = Emitter(self.kernels[name], own, self.vector_bytes, self.has_fma, self.cpu, direct="noinline")
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

    def labels(self, *words: str) -> list[str]:
        self.count += 1
        return [f"{word}{self.count}" for word in words]

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

    def leave(self, failure: Failure) -> str:
        """The label of a way out that reports a failure."""
        (label,) = self.labels("stop")
        self.failures.append(failure)
        self.cold += [f"{label}:", f"  store i64 {len(self.failures)}, ptr {self.status}", "  br label %leave"]
        return label

    # stacks

    def stack(self, i: Instruction) -> None:
        made = _Stack(self.slot("ptr"), self.slot("i64"), self.slot("i64"))
        self.entry.append(f"  store ptr null, ptr {made.block}")
        self.stacks[i.result] = made
        if i.operands:
            count = self.intrinsic("i64", "llvm.smax.i64", [("i64", self.integer(i.operands[0])), ("i64", "0")])
            self.resize(made, i.result.type, count, i)
        else:
            count = "0"
            self.line(f"store i64 0, ptr {made.room}")
        self.line(f"store i64 {count}, ptr {made.count}")

    def resize(self, stack: _Stack, t: Any, room: str, i: Instruction) -> None:
        """Room for so many values, those there are kept."""
        total = self.let(f"mul i64 {room}, {self.bytes(t)}")
        some = self.intrinsic("i64", "llvm.smax.i64", [("i64", total), ("i64", "64")])
        before = self.let(f"load ptr, ptr {stack.block}")
        after = self.let(f"call ptr {self.callee('c', 'realloc')}(ptr {before}, i64 {some})")
        (got,) = self.labels("got")
        out = self.leave((*NO_MEMORY, str(i.loc)))
        self.line(f"br i1 {self.let(f'icmp eq ptr {after}, null')}, label %{out}, label %{got}")
        self.label(got)
        self.line(f"store ptr {after}, ptr {stack.block}")
        self.line(f"store i64 {room}, ptr {stack.room}")

    def push(self, i: Instruction) -> None:
        stack, t = self.stacks[i.operands[0]], i.result.type
        grow, on = self.labels("grow", "pushed")
        count = self.let(f"load i64, ptr {stack.count}")
        room = self.let(f"load i64, ptr {stack.room}")
        self.line(f"br i1 {self.let(f'icmp eq i64 {count}, {room}')}, label %{grow}, label %{on}")
        self.label(grow)
        size = self.intrinsic("i64", "llvm.smax.i64", [("i64", self.bytes(t)), ("i64", "1")])
        least = self.let(f"udiv i64 {LEAST_BLOCK}, {size}")
        least = self.intrinsic("i64", "llvm.smax.i64", [("i64", least), ("i64", "1")])
        more = self.intrinsic("i64", "llvm.smax.i64", [("i64", self.let(f"shl i64 {room}, 1")), ("i64", least)])
        self.resize(stack, t, more, i)
        self.line(f"br label %{on}")
        self.label(on)
        block = self.let(f"load ptr, ptr {stack.block}")
        offset = self.let(f"mul i64 {count}, {self.bytes(t)}")
        self.places[i.result] = _Buffer(self.let(f"getelementptr i8, ptr {block}, i64 {offset}"))
        self.line(f"store i64 {self.let(f'add i64 {count}, 1')}, ptr {stack.count}")

    def release(self, stack: _Stack) -> None:
        """Give a stack's block back."""
        block = self.let(f"load ptr, ptr {stack.block}")
        self.line(f"call void {self.callee('c', 'free')}(ptr {block})")
        self.line(f"store ptr null, ptr {stack.block}")

    # control flow

    def carried(self, values: Sequence[Value]) -> list[str]:
        """Slots with the addresses of references that change from run to run."""
        slots = []
        for value in values:
            slots.append(self.slot("ptr"))
            self.line(f"store ptr {self.places[value].pointer}, ptr {slots[-1]}")
        return slots

    def take(self, values: Sequence[Value], slots: Sequence[str]) -> None:
        for value, slot in zip(values, slots, strict=True):
            self.places[value] = _Buffer(self.let(f"load ptr, ptr {slot}"))

    def keep(self, values: Sequence[Value], slots: Sequence[str]) -> None:
        for value, slot in zip(values, slots, strict=True):
            self.line(f"store ptr {self.places[value].pointer}, ptr {slot}")

    def repeat(self, i: Instruction) -> None:
        (region,) = i.regions
        length = i.params["length"]
        index, *rest = i.operands
        count = self.extent(length[0]) if length else self.integer(rest.pop(0))
        slots = self.carried(rest)
        position = self.slot("i64")
        self.line(f"store i64 0, ptr {position}")
        head, body, end = self.labels("head", "body", "end")
        self.line(f"br label %{head}")
        self.label(head)
        k = self.let(f"load i64, ptr {position}")
        self.line(f"br i1 {self.let(f'icmp slt i64 {k}, {count}')}, label %{body}, label %{end}")
        self.label(body)
        place = self.let(f"sub i64 {self.let(f'sub i64 {count}, 1')}, {k}") if i.params["reverse"] else k
        self.line(f"store i64 {place}, ptr {self.places[index].pointer}")
        self.take(region.parameters, slots)
        self.block(region)
        self.keep(region.results, slots)
        self.line(f"store i64 {self.let(f'add i64 {k}, 1')}, ptr {position}")
        self.tick()
        self.line(f"br label %{head}")
        self.label(end)
        self.take(i.results, slots)

    def repeat_while(self, i: Instruction) -> None:
        condition, region = i.regions
        index, *rest = i.operands
        place = self.places[index].pointer
        slots = self.carried(rest)
        self.line(f"store i64 0, ptr {place}")
        head, body, end = self.labels("head", "body", "end")
        self.line(f"br label %{head}")
        self.label(head)
        self.take(condition.parameters, slots)
        self.block(condition)
        goes_on = self.let(f"load i8, ptr {self.places[condition.results[0]].pointer}")
        self.line(f"br i1 {self.let(f'icmp ne i8 {goes_on}, 0')}, label %{body}, label %{end}")
        self.label(body)
        self.take(region.parameters, slots)
        self.block(region)
        self.keep(region.results, slots)
        number = self.let(f"load i64, ptr {place}")
        self.line(f"store i64 {self.let(f'add i64 {number}, 1')}, ptr {place}")
        self.tick()
        self.line(f"br label %{head}")
        self.label(end)
        self.take(i.results, slots)

    def tick(self) -> None:
        """At the end of a run: count down to the next look at the clock, which may end the program."""
        self.ticks = True
        left, state = self.slot("i64"), self.slot("[2 x i64]")
        period = self.at_entry(f"getelementptr i64, ptr {state}, i64 1")
        self.entry += [
            f"  store i64 {FIRST_TICK}, ptr {left}",
            f"  store i64 0, ptr {state}",
            f"  store i64 {FIRST_TICK}, ptr {period}",
        ]
        look, on = self.labels("look", "on")
        now = self.let(f"sub i64 {self.let(f'load i64, ptr {left}')}, 1")
        self.line(f"store i64 {now}, ptr {left}")
        self.line(f"br i1 {self.let(f'icmp eq i64 {now}, 0')}, label %{look}, label %{on}")
        table, found, stops = self.native("poll"), self.fresh(), self.fresh()
        pointer = self.fresh()
        out = self.leave(None)
        self.cold += [
            f"{look}:",
            f"  {pointer} = inttoptr i64 {table} to ptr",
            f"  {found} = call i64 @tick(ptr {state}, ptr {pointer})",
            f"  store i64 {found}, ptr {left}",
            f"  {stops} = icmp eq i64 {found}, 0",
            f"  br i1 {stops}, label %{out}, label %{on}",
        ]
        self.label(on)

    def branch(self, i: Instruction) -> None:
        names = [self.labels("case")[0] for _ in i.regions]
        (after,) = self.labels("joined")
        index = self.integer(i.operands[0])
        if len(names) == 2:
            self.line(f"br i1 {self.let(f'icmp eq i64 {index}, 0')}, label %{names[0]}, label %{names[1]}")
        else:
            cases = " ".join(f"i64 {k}, label %{name}" for k, name in enumerate(names[1:], 1))
            self.line(f"switch i64 {index}, label %{names[0]} [ {cases} ]")
        for name, region in zip(names, i.regions, strict=True):
            self.label(name)
            self.block(region)
            self.line(f"br label %{after}")
        self.label(after)


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
