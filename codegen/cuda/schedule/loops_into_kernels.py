"""Move loops of a program into kernels: a loop whose body is launches over one index space becomes one launch with the loop
inside, which saves launches.

A loop can run inside the kernel if each element is independent of the others: carried buffers are read and written at the
element's own index only. An element's values then stay in registers from iteration to iteration. Rows of sequences are read
and written in place, and captured values are read as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, Module, walk
from pullback.ir.core.types import I64, ArrayType, RefType, Type
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import AtomicAdd, Extent, For, Load, Prefetch, Store
from pullback.ir.ops.program import Alloc, Copy, Free, Launch, Row, launch
from pullback.ir.ops.program import loop as repeat
from pullback.ir.shapes.extents import rename

PURE = (Elementwise, Constant, Extent, Load)
"""The ops without side effects that may stand outside the innermost loop of a kernel."""


class Refused(Exception):
    """Raised for a loop that stays a loop of the program."""


def loops_into_kernels(module: Module) -> Module:
    """Return a program with its loops moved into kernels where possible."""
    program, *kernels = module.functions
    work = _Program(program, {kernel.name: kernel for kernel in kernels})
    body = work.block(program.body)
    named = {i.params["kernel"] for i in walk(body) if i.op is launch}
    used_kernels = tuple(kernel for kernel in work.kernels.values() if kernel.name in named)
    return Module((replace(program, body=without_idle_buffers(body)), *used_kernels))


def without_idle_buffers(block: Block) -> Block:
    """Return a block without buffers that are only allocated and freed."""
    used = {v for i in walk(block) if not isinstance(i.op, Free) for v in i.operands}
    used |= {v for i in walk(block) for r in i.regions for v in r.results} | set(block.results)
    idle = {v for i in block.instructions if isinstance(i.op, Alloc) for v in i.results if v not in used}
    instructions = (i for i in block.instructions if idle.isdisjoint((*i.operands, *i.results)))
    return Block(block.parameters, tuple(instructions), block.results)


class _Program:
    """Rewrites the loops of a program. ``same``: results of a moved loop that are the buffers it was given."""

    def __init__(self, program: Function, kernels: Mapping[str, Function]) -> None:
        self.program = program
        self.kernels = dict(kernels)
        self.same: dict[Value, Value] = {}

    def block(self, block: Block) -> Block:
        instructions: list[Instruction] = []
        for i in block.instructions:
            operands = tuple(self.same.get(v, v) for v in i.operands)
            new = replace(i, operands=operands, regions=tuple(self.block(r) for r in i.regions))
            if not isinstance(i.op, Copy) or operands[0] is not operands[1]:
                instructions.append(self.loop_as_launch(new, i) if i.op is repeat else new)
        return Block(block.parameters, tuple(instructions), tuple(self.same.get(v, v) for v in block.results))

    def loop_as_launch(self, i: Instruction, old: Instruction) -> Instruction:
        """Return the loop as a launch, or unchanged if it has to stay a loop."""
        if not i.params["length"]:
            return i
        try:
            loop_kernel = LoopKernel(self, i, [self.is_read(v, old) for v in zip(i.operands[1:], i.results, strict=True)])
            kernel = loop_kernel.kernel()
        except Refused:
            return i
        name = next(f"k{n}" for n in range(len(self.kernels), 2 * len(self.kernels) + 1) if f"k{n}" not in self.kernels)
        self.kernels[name] = replace(kernel, name=name)
        self.same.update(zip(i.results, loop_kernel.first, strict=False))
        return Instruction(launch, tuple(loop_kernel.operands), (), {"kernel": name, "sizes": loop_kernel.sizes}, (), i.loc)

    def is_read(self, buffer: tuple[Value, Value], loop: Instruction) -> bool:
        """Return whether the contents of a buffer after a loop may be read elsewhere. ``buffer``: the loop's operand and its
        result."""
        names = {*buffer, *(v for v, replaced in self.same.items() if replaced is buffer[0])}
        others = [i for i in walk(self.program.body) if i is not loop]
        yielded = [v for i in others for r in i.regions for v in r.results]
        read = [v for i in others if not isinstance(i.op, Free) for v in i.operands]
        return not names.isdisjoint((*yielded, *read, *self.program.results))


@dataclass
class Nest:
    """The loops of a kernel around its body. ``outside``: the instructions before each of them."""

    loops: list[Instruction] = field(default_factory=list)
    outside: list[list[Instruction]] = field(default_factory=list)
    body: tuple[Instruction, ...] = ()

    @property
    def extents(self) -> tuple[Any, ...]:
        """Return the trip counts of the loops as extents."""
        definitions = {v: i for before in self.outside for i in before for v in i.results}
        counts = [definitions[i.operands[0]].params if i.operands[0] in definitions else {} for i in self.loops]
        return tuple(params.get("size", params.get("value")) for params in counts)

    @property
    def counters(self) -> tuple[Value, ...]:
        return tuple(i.regions[0].parameters[0] for i in self.loops)


def nest_of(kernel: Function) -> Nest:
    """Return a kernel as one nest of loops. Raises Refused."""
    nest, block = Nest(), kernel.body
    while any(i.regions for i in block.instructions):
        (*before, loop) = block.instructions
        is_plain = isinstance(loop.op, For) and len(loop.operands) == 1 and set(loop.params) <= {"independent", "short"}
        if not is_plain or not all(isinstance(i.op, PURE) and not i.regions for i in before):
            raise Refused
        nest.loops.append(loop)
        nest.outside.append(before)
        block = loop.regions[0]
    if not all(isinstance(i.op, (*PURE, Store, Prefetch)) for i in block.instructions):
        raise Refused
    if any(isinstance(i.op, AtomicAdd) or getattr(i.op, "masked", False) for i in walk(kernel.body)):
        raise Refused
    nest.body = block.instructions
    return nest


def _with_sizes(block: Block, sizes: Mapping[str, int | str]) -> Block:
    """Return a kernel's body whose extents are renamed or replaced by constants."""
    instructions = []
    for i in block.instructions:
        regions = tuple(_with_sizes(r, sizes) for r in i.regions)
        if isinstance(i.op, Extent):
            size = sizes[i.params["size"]]
            is_known = isinstance(size, int)
            params = {"value": size, "dtype": I64} if is_known else {"size": size}
            instructions.append(replace(i, op=OPS["const" if is_known else "extent"], params=params))
        else:
            instructions.append(replace(i, regions=regions))
    return Block(block.parameters, tuple(instructions), block.results)


@dataclass
class InnerLaunch:
    """A launch in the loop's body: the ``nest`` of its kernel, the operand ``of`` each parameter, the values of its kernel
    mapped to values of the new one (``env``), and the instructions outside its loops that are recomputed in each iteration
    (``late``)."""

    nest: Nest
    of: dict[Value, Value]
    env: dict[Value, Value] = field(default_factory=dict)
    late: list[Instruction] = field(default_factory=list)

    def written(self) -> dict[Value, None]:
        """Return the operands that the launch stores to, in the order of the stores, so that equal programs have equal texts."""
        return dict.fromkeys(self.of[i.operands[1]] for i in self.nest.body if isinstance(i.op, Store))


class LoopKernel:
    """A loop of a program as a kernel. ``operands`` and ``sizes`` of its launch; ``needed``: for each buffer, whether it is
    read after the loop.

    ``buffers``: the parameters of the loop's body, and the buffers from outside that it writes; ``first``: their initial
    values outside the loop.
    """

    def __init__(self, program: _Program, loop: Instruction, needed: Sequence[bool]) -> None:
        (region,) = loop.regions
        launches = [i for i in region.instructions if isinstance(i.op, Launch)]
        plain = all(isinstance(i.op, Launch | Copy | Row | Alloc | Free) for i in region.instructions)
        if not launches or not plain or any(i.params.get("failures") for i in launches):
            raise Refused
        self.loop, self.region = loop, region
        self.index, *first = loop.operands
        self.parts: dict[Instruction, InnerLaunch] = {}
        self.types: dict[Value, RefType] = {}
        self.sizes: list[int | str] = []
        for i in launches:
            sizes = {f"s{k}": e if isinstance(e, int) else self.size(e) for k, e in enumerate(i.params["sizes"])}
            kernel = rename(program.kernels[i.params["kernel"]], sizes)
            kernel = replace(kernel, body=_with_sizes(kernel.body, sizes))
            self.parts[i] = InnerLaunch(nest_of(kernel), dict(zip(kernel.parameters, i.operands, strict=True)))
            self.types |= {v: p.type for p, v in zip(kernel.parameters, i.operands, strict=True) if isinstance(p.type, RefType)}
        self.rows = {i.result: i for i in region.instructions if isinstance(i.op, Row)}
        self.local = {i.result for i in region.instructions if isinstance(i.op, Alloc)}
        self.written = dict.fromkeys(v for part in self.parts.values() for v in part.written())
        self.written |= dict.fromkeys(i.operands[1] for i in region.instructions if isinstance(i.op, Copy))
        self.filled = {self.rows[v].operands[0] for v in self.written if v in self.rows}
        outside = [v for v in self.written if v not in (*region.parameters, *self.rows, *self.local)]
        self.buffers, self.first = [*region.parameters, *outside], [*first, *outside]
        self.needed = [*needed, *(True for _ in outside)]
        (length,) = loop.params["length"]
        self.length = length if isinstance(length, int) else self.size(length)
        self.operands: list[Value] = []
        self.parameters: list[Value] = []
        self.shape = self.space()

    def size(self, extent: int | str) -> str:
        """Return the kernel's name for an extent of the program."""
        if extent not in self.sizes:
            self.sizes.append(extent)
        return f"s{self.sizes.index(extent)}"

    def space(self) -> tuple[int | str, ...]:
        """Return the extents of the loops of all kernels, which must be the shape of everything carried. Raises Refused."""
        spaces = {part.nest.extents for part in self.parts.values()}
        own = [v for v in (*self.buffers, *self.local) if v is not self.index]
        shapes = {self.types[v].shape for v in own if v in self.types}
        if len(spaces) != 1 or shapes != spaces or len({v.type.shape for v in own if isinstance(v.type, RefType)}) != 1:
            raise Refused
        if not all(isinstance(v.type, RefType) and v.type.layout == "c" for v in (*own, *self.first)):
            raise Refused
        return next(iter(spaces))

    # the kernel

    def parameter(self, operand: Value, t: Type, name: str = "") -> Value:
        """Return the kernel's parameter for an operand of the launch."""
        if operand not in self.operands:
            self.operands.append(operand)
            self.parameters.append(Value(t, name or operand.name))
        return self.parameters[self.operands.index(operand)]

    def kernel(self) -> Function:
        """Return the kernel. Raises Refused."""
        b = Builder()
        is_known = isinstance(self.length, int)
        params = {"value": self.length, "dtype": I64} if is_known else {"size": self.length}
        (self.count,) = b.emit(OPS["const" if is_known else "extent"], (), params)
        frame, *others = self.parts.values()
        builders, varying = [b], set[Value]()
        for depth, loop in enumerate(frame.nest.loops):
            for part in (frame, *others):
                self.emit_outer(part, depth, builders[-1], varying)
            counter = loop.regions[0].parameters[0]
            new_counter = Value(counter.type, counter.name)
            for part in (frame, *others):
                part.env[part.nest.counters[depth]] = new_counter
            builders.append(Builder())
        self.at = tuple(frame.env[c] for c in frame.nest.counters)
        self.emit_element(builders[-1])
        for loop, inner, outer in zip(reversed(frame.nest.loops), reversed(builders[1:]), reversed(builders[:-1]), strict=True):
            region = Block((frame.env[loop.regions[0].parameters[0]],), tuple(inner.instructions), ())
            outer.emit(OPS["for"], (frame.env[loop.operands[0]],), dict(loop.params), (region,))
        return Function("", Block(tuple(self.parameters), tuple(b.instructions), ()), "kernel")

    def emit_outer(self, part: InnerLaunch, depth: int, b: Builder, varying: set[Value]) -> None:
        """Emit the instructions of a kernel before one of its loops, except those that vary between iterations."""
        for i in part.nest.outside[depth]:
            if (isinstance(i.op, Load) and self.varies(part.of[i.operands[0]])) or not varying.isdisjoint(i.operands):
                varying.update(i.results)
                part.late.append(i)
            else:
                self.emit_copy(part, b, i)

    def varies(self, operand: Value) -> bool:
        """Return whether the contents of an operand of a launch vary between iterations."""
        return operand is self.index or operand in self.rows or operand in self.buffers or operand in self.local

    def emit_copy(self, part: InnerLaunch, b: Builder, i: Instruction) -> None:
        """Emit a copy of an instruction of an old kernel."""
        operands = [part.env[v] if v in part.env else self.captured(part, v) for v in i.operands]
        part.env.update(zip(i.results, b.at(i.loc).emit(i.op, operands, dict(i.params)), strict=True))

    def captured(self, part: InnerLaunch, v: Value) -> Value:
        """Return the new kernel's parameter for a captured parameter of an old one. Raises Refused."""
        if v not in part.of or part.of[v] in (*self.first, *self.filled) or self.varies(part.of[v]):
            raise Refused
        return self.parameter(part.of[v], v.type, v.name)

    def emit_element(self, b: Builder) -> None:
        """Emit all iterations for one element."""
        dtypes = [v.type.dtype for v in self.buffers]
        before = [Value(ArrayType(d), v.name) for d, v in zip(dtypes, self.buffers, strict=True)]
        inner, counter = Builder(), Value(ArrayType(I64), "t")
        self.iteration = counter
        if self.loop.params["reverse"]:
            (unit,) = inner.emit(OPS["const"], (), {"value": 1, "dtype": I64})
            (last,) = inner.emit(OPS["sub"], (self.count, unit))
            (self.iteration,) = inner.emit(OPS["sub"], (last, counter))
        self.content = dict(zip(self.buffers, before, strict=True))
        self.emit_iteration(inner)
        ends = (*self.region.results, *self.buffers[len(self.region.parameters) :])
        if any(v not in self.content for v in ends):
            raise Refused
        after = [self.content[v] for v in ends]
        used = {v for i in inner.instructions for v in i.operands}
        live = {k for k, need in enumerate(self.needed) if need or before[k] in used}
        while more := {k for k, v in enumerate(before) for j in live if after[j] is v} - live:
            live |= more
        carried = sorted(live)
        refs = {k: self.parameter(self.first[k], RefType(dtypes[k], self.shape)) for k in carried}
        first = [b.emit(OPS["load"], (refs[k], *self.at))[0] for k in carried]
        region = Block((counter, *(before[k] for k in carried)), tuple(inner.instructions), tuple(after[k] for k in carried))
        ends = b.at(self.loop.loc).emit(OPS["for"], (self.count, *first), {} if carried else {"ordered": True}, (region,))
        for k, value in zip(carried, ends, strict=True):
            if self.needed[k]:
                b.emit(OPS["store"], (value, refs[k], *self.at))

    def emit_iteration(self, b: Builder) -> None:
        """Emit one iteration; ``content`` maps the buffers of the loop to the values of this element."""
        for i in self.region.instructions:
            if isinstance(i.op, Copy):
                self.store(b, i.operands[1], self.load_copied(b, i.operands[0]))
            elif isinstance(i.op, Launch):
                part = self.parts[i]
                for k in (*part.late, *part.nest.body):
                    self.emit_instruction(part, b, k)

    def emit_instruction(self, part: InnerLaunch, b: Builder, i: Instruction) -> None:
        if isinstance(i.op, Store):
            value, ref, *index = i.operands
            if tuple(part.env.get(v) for v in index) != self.at:
                raise Refused
            self.store(b, part.of[ref], part.env[value] if value in part.env else self.captured(part, value))
        elif isinstance(i.op, Load) and self.varies(part.of[i.operands[0]]):
            ref, *index = i.operands
            part.env[i.result] = self.load(b.at(i.loc), part.of[ref], tuple(part.env[v] for v in index))
        elif not isinstance(i.op, Prefetch):
            self.emit_copy(part, b, i)

    def load_copied(self, b: Builder, source: Value) -> Value:
        """Return this element of a buffer that is copied. Raises Refused."""
        if self.varies(source):
            return self.load(b, source, self.at)
        is_array = isinstance(source.type, RefType) and len(source.type.shape) == len(self.shape)
        if source in (*self.first, *self.filled) or not is_array:
            raise Refused
        return b.emit(OPS["load"], (self.parameter(source, RefType(source.type.dtype, self.shape)), *self.at))[0]

    def load(self, b: Builder, ref: Value, index: tuple[Value, ...]) -> Value:
        """Return the value of a buffer of the loop at ``index``. Raises Refused for another element than this one."""
        if ref is self.index:
            return self.iteration
        if ref in self.content:
            if index != self.at:
                raise Refused
            return self.content[ref]
        if ref not in self.rows or self.rows[ref].operands[0] in self.filled:
            raise Refused
        return b.emit(OPS["load"], (self.sequence(ref), self.iteration, *index))[0]

    def store(self, b: Builder, ref: Value, value: Value) -> None:
        if ref in self.rows:
            b.emit(OPS["store"], (value, self.sequence(ref), self.iteration, *self.at))
        elif ref not in self.buffers and ref not in self.local:
            raise Refused
        self.content[ref] = value

    def sequence(self, ref: Value) -> Value:
        """Return the parameter for the sequence that contains a buffer as a row. Raises Refused."""
        sequence, index = self.rows[ref].operands
        if index is not self.index or not isinstance(sequence.type, RefType) or sequence in self.first:
            raise Refused
        shape = self.types[ref].shape if ref in self.types else self.shape
        return self.parameter(sequence, RefType(sequence.type.dtype, (self.length, *shape)))
