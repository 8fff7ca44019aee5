"""emit, for the CPU: convert a program with control flow to one LLVM function, the *driver*, and its kernels to further ones.

A driver is called like a kernel: ``i64 @name(ptr %args)``, with the buffers of the program as its references. Loops and
branches become LLVM's; rank-0 buffers are stack slots, which LLVM promotes to registers once small kernels are inlined. Stacks
are heap blocks of the C library, freed on every exit of the driver. Each loop calls ``@tick`` now and then, which reads the
clock and, a few times in a tenth of a second, polls whether the program is to be interrupted.

The status is 0, or the position, counted from 1, of the failure in ``Driver.failures``.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pullback.codegen.cpu.llvm.floor_division import reciprocal
from pullback.codegen.cpu.llvm.interrupt_poll import ASKED, TICK
from pullback.codegen.cpu.llvm.kernel import Emitter
from pullback.codegen.cpu.llvm.lanes import stored
from pullback.codegen.cpu.llvm.overlapping_loads import read_only
from pullback.codegen.cpu.llvm.parallel_loops import Chunks, chunks_module
from pullback.codegen.cpu.llvm.program_control_flow import (
    branch,
    heap_buffer,
    is_over_scalars,
    push,
    release,
    release_heap,
    repeat,
    repeat_while,
    stack,
)
from pullback.codegen.cpu.llvm.program_interface import Driver, on_stack, real_count
from pullback.codegen.cpu.llvm.program_text import Buffer, DriverText
from pullback.codegen.cpu.llvm.text import BRANCHY, HOT_LOOPS, NO_MEMORY, RARELY, Emitted, LazyText
from pullback.codegen.cpu.loops.reachability import Steps, joined, renamed
from pullback.codegen.slots import Slot
from pullback.codegen.targets import Target
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import ArrayType, Extent, RefType, StackType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.control.host import Host, sizes_by_value
from pullback.ir.ops.kernel.kernel import Extent as NamedExtent
from pullback.ir.ops.program import (
    Alloc,
    BindExtent,
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
from pullback.ir.shapes.extents import by_value_in, product, renamed_extent

KERNEL_OUT_OF_MEMORY = ("MemoryError", "there is no memory for what a step computes with")
"""The error raised if a kernel gets no heap memory."""
MOST_INLINED = 1500
"""Largest number of lines of a kernel, times its launches in loops, that is inlined. A call of a kernel of 12 equations passes
its 24 scalars through memory, in a fifth of the time that it computes for."""
LONG_CHUNKS = 20_000
"""Number of characters from which loops over chunks are a module of their own: about 10 ms of compile, ten times what a module
costs by itself."""
LABEL = re.compile(r"label %([\w.]+)")
FIRST_LOOP = 10_000
"""The number of the metadata of loops that are not unrolled; those of the loops follow."""
NOT_UNROLLED = f'!{FIRST_LOOP} = !{{!"llvm.loop.unroll.disable"}}'
MOST_CONTROL = 4
"""Largest number of loops and branches of a driver for which LLVM numbers values globally; see ``text.BRANCHY``."""
MOST_INLINED_TOTAL = 3000
"""Largest number of lines of all inlined kernels of a driver."""


def _has_hot_loops(block: Block, kernels: Mapping[str, Function]) -> bool:
    """Return whether a block has a loop in a loop, or a loop that computes with scalars alone."""
    loops = [i for i in walk(block) if isinstance(i.op, Repeat | RepeatWhile)]
    return any(
        is_over_scalars(i.regions, kernels) or any(isinstance(j.op, Repeat | RepeatWhile) for r in i.regions for j in walk(r))
        for i in loops
    )


def emit_program(
    program: Function,
    kernels: Mapping[str, Function],
    fresh: Sequence[Value],
    name: str,
    target: Target,
    writer: type[ProgramWriter] | None = None,
) -> Driver:
    """Return the driver of a program. ``kernels``: scheduled for the CPU; ``fresh``: the buffers that are results."""
    return (writer or ProgramWriter)(program, kernels, fresh, name, target).run()


class ProgramWriter(DriverText):
    """Emits a driver. ``emitter``: the class that emits its kernels."""

    emitter: type[Emitter] = Emitter

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
        self.chunks: dict[str, Chunks] = {}
        self.chunk_steps: dict[str, Steps] = {}
        self.parallel: list[Instruction] = []
        self.small_buffers: dict[str, RefType] = {}
        self.functions: list[str] = []
        self.small_results: list[tuple[str, RefType, str]] = []
        self.limited: dict[Extent, None] = {}
        self.created: list[Value] = []
        self.inner_launches = Counter(i.params["kernel"] for i in _inner_launches(program.body))
        self.inlined = self.loops = 0
        self.constant = _constant_operands(program, kernels)

    def run(self) -> Driver:
        """Emit the driver."""
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
        for value in self.heap:
            release_heap(self, value)
        for cell, t, target in self.small_results:
            self.copy_small(t, cell, target)
        self.line(f"ret i64 {self.let(f'load i64, ptr {self.status}')}")
        self.pass_chunks()
        body = [f"define i64 @{self.name}(ptr noalias %args) {{", "entry:", *self.entry, *self.lines, "}"]
        if self.ticks:
            self.functions.append(TICK)
            self.declared.update(dict.fromkeys(f"declare i64 @llvm.s{m}.i64(i64, i64)" for m in ("min", "max")))
        if self.ticks or self.hosts:
            self.functions.append(ASKED)
        text = "\n".join([*self.declared, "", *self.functions, *body, ""])
        is_hot = _has_hot_loops(self.program.body, self.kernels)
        control = sum(isinstance(i.op, Repeat | RepeatWhile | Branch) for i in walk(self.program.body))
        return Driver(
            name=self.name,
            text=BRANCHY + text if control > MOST_CONTROL else HOT_LOOPS + text if is_hot else text,
            slots=tuple(self.slots),
            buffers=tuple(self.buffers),
            sizes=tuple(self.sizes),
            hosts=tuple(self.hosts),
            failures=tuple(self.failures),
            limited=tuple(self.limited),
            created=tuple(self.created),
        )

    def pass_chunks(self) -> None:
        """Emit the addresses of the functions that run chunks: one for each kernel with long loops, and one for all others
        that are launched with the same extents."""
        groups: dict[str | frozenset[frozenset[Extent]], list[Chunks]] = {}
        steps_of: dict[str | frozenset[frozenset[Extent]], list[Steps]] = {}
        key: str | frozenset[frozenset[Extent]]
        for kernel, chunks in self.chunks.items():
            launches = [i for i in self.parallel if i.params["kernel"] == kernel]
            is_long = sum(len(text) for _, text in chunks.functions) > LONG_CHUNKS
            key = kernel if is_long else frozenset(map(_extents, launches))
            groups.setdefault(key, []).append(chunks)
            steps_of.setdefault(key, []).extend(map(self.steps_at, launches))
        for key, group in groups.items():
            functions = {chunks.start + k: f for chunks in group for k, f in enumerate(chunks.functions)}
            text, name = chunks_module(functions, self.declared)
            steps = joined(steps_of[key])
            address = self.native("shared", name, _packed(text), *([steps] if steps else []))
            self.entry += [f"  {_chunks_of(chunks.slot)} = bitcast i64 {address} to i64" for chunks in group]

    def steps_at(self, i: Instruction) -> Steps:
        """Return the steps that compute whether a launch runs several chunks, from the sizes of the driver."""
        numbers: dict[str, Extent] = {str(name): f"s{k}" for k, name in enumerate(self.sizes)}

        def of_driver(extent: Extent) -> Extent | None:
            total = renamed_extent(extent, {f"s{k}": _product(e) for k, e in enumerate(i.params["sizes"])})
            return None if by_value_in((total,)) else renamed_extent(total, numbers)

        return renamed(self.chunk_steps[i.params["kernel"]], of_driver)

    # values

    def parameter(self, value: Value) -> None:
        """Bind a parameter of the program to its argument slots."""
        self.buffers.append(value)
        position = len(self.buffers) - 1
        t: Any = value.type
        if isinstance(t, ArrayType):
            self.scalars[value] = self.argument("scalar", position, t.dtype.name)
            return
        self.locations[value] = Buffer(self.address("pointer", position), position, t.rank if t.layout == "strided" else 0)

    # blocks

    def block(self, block: Block) -> None:
        for i in block.instructions:
            self.instruction(i)

    def instruction(self, i: Instruction) -> None:
        """Emit an instruction. Raises NotImplementedError for an op that has no LLVM lowering."""
        match i.op:
            case Alloc():
                self.alloc(i)
            case View():
                self.locations[i.result] = self.locations[i.operands[0]]
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
                self.line(f"store i64 {count}, ptr {self.locations[i.operands[1]].pointer}")
            case BindExtent():
                self.line(f"store i64 {self.integer(i.operands[0])}, ptr {self.bound_slot(i.params['extent'][0])}")
            case Free():
                if isinstance(i.operands[0].type, StackType):
                    release(self, self.stacks[i.operands[0]])
                elif i.operands[0] in self.heap:
                    release_heap(self, i.operands[0])
            case Repeat():
                repeat(self, i)
            case RepeatWhile():
                repeat_while(self, i)
            case Branch():
                branch(self, i)
            case _:
                raise NotImplementedError(f"{i.op.name} has no LLVM spelling")

    def alloc(self, i: Instruction) -> None:
        """Allocate a buffer: a small one on the stack, copied to the result's memory at the end; one with an extent by value on
        the heap, or, if it is a result, by ("create",); another one by the caller."""
        t: Any = i.result.type
        if by_value_in(t.shape):
            if i.result in self.returned:
                self.create(i)
            else:
                heap_buffer(self, i)
            return
        if on_stack(t):
            cell = self.slot(_small_type(t))
            self.small_buffers[cell] = t
            self.locations[i.result] = Buffer(cell)
            if i.result in self.returned:
                self.buffers.append(i.result)
                self.small_results.append((cell, t, self.address("pointer", len(self.buffers) - 1)))
            return
        self.buffers.append(i.result)
        self.locations[i.result] = Buffer(self.address("pointer", len(self.buffers) - 1))

    def create(self, i: Instruction) -> None:
        """Allocate a result whose extents are known only here."""
        shape = [self.extent(e) for e in i.result.type.shape]
        table = self.slot(f"[{1 + len(shape)} x i64]")
        for k, entry in enumerate((str(len(self.created)), *shape)):
            self.line(f"store i64 {entry}, ptr {self.let(f'getelementptr i64, ptr {table}, i64 {k}')}")
        self.created.append(i.result)
        address = self.let(f"call i64 {self.callee('create')}(ptr {table}, i64 {self.native('creation')})")
        (created,) = self.labels("created")
        self.line(f"br i1 {self.let(f'icmp eq i64 {address}, 0')}, label %{self.exit_label(None)}, label %{created}")
        self.label(created)
        self.locations[i.result] = Buffer(self.let(f"inttoptr i64 {address} to ptr"))

    def copy_small(self, t: Any, source: str, target: str) -> None:
        """Emit a copy of the numbers of a small buffer."""
        name = stored(t.dtype.part)
        for k in range(real_count(t)):
            addresses = [self.let(f"getelementptr {name}, ptr {p}, i64 {k}") if k else p for p in (source, target)]
            loaded = self.let(f"load {name}, ptr {addresses[0]}, align {t.dtype.part.bytes}")
            self.line(f"store {name} {loaded}, ptr {addresses[1]}, align {t.dtype.part.bytes}")

    def copy(self, i: Instruction) -> None:
        """Emit a copy of a buffer, unless source and target have the same address."""
        source, target = i.operands
        destination = self.locations[target].pointer
        t: Any = target.type
        if source in self.scalars:
            self.line(f"store i{t.dtype.bits} {self.narrow(self.scalars[source], t)}, ptr {destination}")
            return
        if on_stack(t):
            self.copy_small(t, self.locations[source].pointer, destination)
            return
        origin = self.locations[source].pointer
        if origin == destination:
            return
        distinct, after = self.labels("copy", "copied")
        self.line(f"br i1 {self.let(f'icmp eq ptr {origin}, {destination}')}, label %{after}, label %{distinct}")
        self.label(distinct)
        self.declared["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        self.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {destination}, ptr {origin}, i64 {self.bytes(t)}, i1 false)")
        self.line(f"br label %{after}")
        self.label(after)

    def narrow(self, bits: str, t: RefType) -> str:
        """Truncate the 64 bits of a scalar to its dtype's."""
        return bits if t.dtype.bits == 64 else self.let(f"trunc i64 {bits} to i{t.dtype.bits}")

    def row(self, i: Instruction) -> None:
        """Bind a reference to a row of a sequence."""
        sequence, index = i.operands
        base = self.base_pointer(sequence)
        step = self.bytes(i.result.type)
        offset = self.let(f"mul i64 {self.integer(index)}, {step}")
        self.locations[i.result] = Buffer(self.let(f"getelementptr i8, ptr {base}, i64 {offset}"))

    def base_pointer(self, value: Value) -> str:
        """Return the base address of a buffer or a stack."""
        if isinstance(value.type, StackType):
            return self.let(f"load ptr, ptr {self.stacks[value].block}")
        return self.locations[value].pointer

    # steps

    def launch(self, i: Instruction) -> None:
        """Emit the call of a kernel; its failures become failures of the driver."""
        name, slots, is_inlined = self.kernel(i.params["kernel"])
        arguments = []
        if i.params["kernel"] in self.chunks:
            self.parallel.append(i)
        copies = {} if is_inlined else self.copies_of_small(i.operands)
        if any(slot[0] == "library" for slot in slots):
            products = map(_product, i.params["sizes"])
            self.limited.update(dict.fromkeys(e for e in products if not by_value_in((e,))))
        for kind, *details in slots:
            match kind:
                case "pointer":
                    value = i.operands[details[0]]
                    pointer = self.locations[value].pointer
                    arguments.append(f"ptr {copies.get(pointer, pointer)}")
                case "stride":
                    arguments.append(f"i64 {self.stride(i.operands[details[0]], details[1])}")
                case "scalar":
                    arguments.append(f"i64 {self.scalars[i.operands[details[0]]]}")
                case "reciprocal":
                    arguments.append(f"i64 {self.reciprocal(i.operands[details[0]])}")
                case "size":
                    arguments.append(f"i64 {self.extent(_product(i.params['sizes'][details[0]]))}")
                case "chunks":
                    arguments.append(f"i64 {_chunks_of((kind, *details))}")
                case _:
                    arguments.append(f"i64 {self.native(kind, *details)}")
        status = self.let(f"call i64 @{name}({', '.join(arguments)})")
        for pointer, copied in copies.items():
            self.copy_small(self.small_buffers[pointer], copied, pointer)
        if any(slot[0] == "room" for slot in slots):
            (on,) = self.labels("on")
            out = self.exit_label((*KERNEL_OUT_OF_MEMORY, str(i.loc)))
            self.line(f"br i1 {self.let(f'icmp eq i64 {status}, {NO_MEMORY}')}, label %{out}, label %{on}")
            self.label(on)
        failures = i.params.get("failures", ())
        if failures:
            base = len(self.failures)
            self.failures.extend(tuple(failure) for failure in failures)
            self.leave_if_failed(status, base)

    def copies_of_small(self, values: Sequence[Value]) -> dict[str, str]:
        """Copy the small buffers of ``values``, of which several may be views of one, for a call that is not inlined: LLVM keeps
        a buffer in registers only if it does not escape. Return the addresses of the copies by those of the buffers."""
        copies: dict[str, str] = {}
        for value in values:
            pointer = self.locations[value].pointer if value in self.locations else ""
            if pointer in self.small_buffers and pointer not in copies:
                copies[pointer] = self.slot(_small_type(self.small_buffers[pointer]))
                self.copy_small(self.small_buffers[pointer], pointer, copies[pointer])
        return copies

    def reciprocal(self, divisor: Value) -> str:
        """Return the reciprocal of a scalar argument, computed at entry."""
        if divisor not in self.reciprocals:
            self.reciprocals[divisor] = reciprocal(self, self.scalars[divisor])
        return self.reciprocals[divisor]

    def stride(self, value: Value, axis: int) -> str:
        """Return the byte stride of a parameter along an axis; parts of complex elements form a last axis."""
        buffer = self.locations[value]
        return str(value.type.dtype.bytes) if axis == buffer.axes else self.native("stride", buffer.position, axis)

    def kernel(self, name: str) -> tuple[str, tuple[tuple[Any, ...], ...], bool]:
        """Return the function of a kernel, its argument slots, and whether it is inlined."""
        if name not in self.called:
            symbol = f"kernel{len(self.called)}"
            is_inlined = self.may_inline(name, _least_lines(self.kernels[name]))
            emitter, emitted = self.emitted(name, symbol, "alwaysinline" if is_inlined else "noinline")
            if is_inlined and not self.may_inline(name, len(emitter.lines)):
                is_inlined = False
                emitter, emitted = self.emitted(name, symbol, "noinline")
            self.inlined += len(emitter.lines) * self.inner_launches[name] * is_inlined
            chunks = cast(Chunks, emitter.chunks)
            if chunks.paths:
                self.chunks[name], self.chunk_steps[name] = chunks, emitter.reach.steps(chunks.paths)
            self.declared.update(emitter.declared)
            self.functions.append(self.without_unrolling(emitted.text))
            self.called[name] = emitted.name, emitted.slots, is_inlined
        return self.called[name]

    def may_inline(self, name: str, lines: int) -> bool:
        """Return whether a kernel of some lines is inlined."""
        size = lines * self.inner_launches[name]
        return 0 < size <= MOST_INLINED and self.inlined + size <= MOST_INLINED_TOTAL

    def emitted(self, name: str, symbol: str, direct: str) -> tuple[Emitter, Emitted]:
        """Emit a kernel as a function ``symbol`` with the attribute ``direct``."""
        emitter = self.emitter(self.kernels[name], symbol, self.target, direct=direct)
        emitter.constant = frozenset(self.kernels[name].parameters[k] for k in self.constant[name])
        emitter.chunks = Chunks(("chunks", symbol), sum(len(chunks.functions) for chunks in self.chunks.values()))
        return emitter, emitter.run()

    def without_unrolling(self, text: str) -> str:
        """Mark the loops of a kernel, which is unrolled already, so that LLVM unrolls the loops of the driver alone."""
        labels, lines = set[str](), []
        for line in text.split("\n"):
            if line.endswith(":"):
                labels.add(line[:-1])
            elif line.startswith("  br ") and "!" not in line and any(label in labels for label in LABEL.findall(line)):
                self.loops += 1
                loop = FIRST_LOOP + self.loops
                self.declared[NOT_UNROLLED] = self.declared[f"!{loop} = distinct !{{!{loop}, !{FIRST_LOOP}}}"] = None
                line += f", !llvm.loop !{loop}"
            lines.append(line)
        return "\n".join(lines)

    def host(self, i: Instruction) -> None:
        """Emit the call of a step in Python, with a table of its buffers and of the extents by value of these.

        A pending signal is handled before the call: an exception that its handler raises at the entry of the step would be
        lost.
        """
        interrupts = self.let(f"inttoptr i64 {self.native('poll')} to ptr")
        stops = self.let(f"call i64 @asked(ptr {interrupts})")
        out, (on,) = self.exit_label(None), self.labels("unasked")
        self.line(f"br i1 {self.let(f'icmp eq i64 {stops}, 0')}, label %{on}, label %{out}")
        self.label(on)
        sizes = sizes_by_value(i)
        table = self.slot(f"[{max(len(i.operands) + len(sizes), 1)} x ptr]")
        copies = self.copies_of_small(i.operands)
        for k, value in enumerate(i.operands):
            pointer = self.locations[value].pointer
            self.line(f"store ptr {copies.get(pointer, pointer)}, ptr {self.let(f'getelementptr ptr, ptr {table}, i64 {k}')}")
        for k, name in enumerate(sizes, len(i.operands)):
            self.line(f"store i64 {self.size(name)}, ptr {self.let(f'getelementptr ptr, ptr {table}, i64 {k}')}")
        callee = self.callee("host", len(self.hosts))
        self.hosts.append(i)
        status = self.let(f"call i64 {callee}(ptr {table})")
        self.failures.append(None)
        self.leave_if_failed(status, len(self.failures) - 1)
        for pointer, copied in copies.items():
            self.copy_small(self.small_buffers[pointer], copied, pointer)

    # exits

    def leave_if_failed(self, status: str, base: int) -> None:
        """Branch to the exit if a status is not 0; the driver's status is then ``status`` plus ``base``."""
        failed, on = self.labels("failed", "on")
        self.line(f"br i1 {self.let(f'icmp ne i64 {status}, 0')}, label %{failed}, label %{on}, !prof !9000")
        self.declared[RARELY] = None
        code = self.fresh()
        self.cold += [
            f"{failed}:",
            f"  {code} = add i64 {status}, {base}",
            f"  store i64 {code}, ptr {self.status}",
            "  br label %leave",
        ]
        self.label(on)


def _least_lines(kernel: Function) -> int:
    """Return a number of lines that a kernel has at least."""
    return max(1, sum(1 for i in walk(kernel.body) if not isinstance(i.op, Constant | NamedExtent)))


def _packed(text: str) -> LazyText:
    """Return a text that takes little memory until it is read."""
    packed = zlib.compress(text.encode(), 1)
    return LazyText(lambda: zlib.decompress(packed).decode())


def _chunks_of(slot: Slot) -> str:
    """Return the name of the address in the slot of a kernel's loops over chunks."""
    return f"%chunks.{slot[1]}"


def _extents(i: Instruction) -> frozenset[Extent]:
    """Return the extents with which a kernel is launched."""
    return frozenset(map(_product, i.params["sizes"]))


def _inner_launches(block: Block) -> Iterator[Instruction]:
    """Yield the launches in regions, such as bodies of loops."""
    for i in block.instructions:
        for region in i.regions:
            yield from (k for k in walk(region) if isinstance(k.op, Launch))


def _constant_operands(program: Function, kernels: Mapping[str, Function]) -> dict[str, set[int]]:
    """Return, for each kernel, the positions of the operands that are, in all its launches, parameters of the program to which
    nothing writes: not its steps, and no code of the user's that it calls."""
    steps = list(walk(program.body))
    constant = {v for v in program.parameters if isinstance(v.type, RefType)}
    constant.difference_update(program.results)
    read = {name: read_only(kernel) for name, kernel in kernels.items()}
    for i in steps:
        constant.difference_update(v for region in i.regions for v in region.results)
        if isinstance(i.op, Host):
            return {name: set() for name in kernels}
        if isinstance(i.op, Launch):
            parameters = kernels[i.params["kernel"]].parameters
            written = (v for v, p in zip(i.operands, parameters, strict=True) if p not in read[i.params["kernel"]])
            constant.difference_update(written)
        else:
            constant.difference_update(i.operands[isinstance(i.op, Copy) :])
    result = {name: set(range(len(kernel.parameters))) for name, kernel in kernels.items()}
    for i in steps:
        if isinstance(i.op, Launch):
            result[i.params["kernel"]] &= {k for k, v in enumerate(i.operands) if v in constant}
    return result


def _small_type(t: Any) -> str:
    """Return the LLVM type of a small buffer."""
    name = stored(t.dtype.part)
    return name if real_count(t) == 1 else f"[{real_count(t)} x {name}]"


def _product(extents: Any) -> Extent:
    """Return a list of extents as one extent, their product."""
    return product(extents) if isinstance(extents, tuple | list) else extents
