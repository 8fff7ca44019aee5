"""Loops of a program whose body is launches over one space, as one launch with the loop inside, where launches cost.

The turns of the loop may run inside the kernel if each element goes its own way: what is carried is read and written at the
element of its own alone. Then an element's numbers stay in registers from turn to turn; rows of sequences are read and written
where they are, and what the loop captures is read as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
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


class Refused(Exception):
    """A loop stays a loop of the program."""


def turns_inside(module: Module) -> Module:
    """A program with as many of its loops inside kernels as can be."""
    program, *kernels = module.functions
    work = _Program(program, {kernel.name: kernel for kernel in kernels})
    body = work.block(program.body)
    named = {i.params["kernel"] for i in walk(body) if i.op is launch}
    found = tuple(kernel for kernel in work.kernels.values() if kernel.name in named)
    return Module((replace(program, body=without_idle_buffers(body)), *found))


def without_idle_buffers(block: Block) -> Block:
    """A block without buffers that are made and freed only."""
    used = {v for i in walk(block) if not isinstance(i.op, Free) for v in i.operands}
    used |= {v for i in walk(block) for r in i.regions for v in r.results} | set(block.results)
    idle = {v for i in block.instructions if isinstance(i.op, Alloc) for v in i.results if v not in used}
    kept = (i for i in block.instructions if idle.isdisjoint((*i.operands, *i.results)))
    return Block(block.parameters, tuple(kept), block.results)


class _Program:
    def __init__(self, program: Function, kernels: Mapping[str, Function]) -> None:
        self.program = program
        self.kernels = dict(kernels)
        self.same: dict[Value, Value] = {}

    def block(self, block: Block) -> Block:
        made: list[Instruction] = []
        for i in block.instructions:
            operands = tuple(self.same.get(v, v) for v in i.operands)
            new = replace(i, operands=operands, regions=tuple(self.block(r) for r in i.regions))
            if not isinstance(i.op, Copy) or operands[0] is not operands[1]:
                made.append(self.inside(new, i) if i.op is repeat else new)
        return Block(block.parameters, tuple(made), tuple(self.same.get(v, v) for v in block.results))

    def inside(self, i: Instruction, old: Instruction) -> Instruction:
        """The loop as a launch, if it can be one."""
        if not i.params["length"]:
            return i
        try:
            turns = Turns(self, i, [self.is_read(v, old) for v in zip(i.operands[1:], i.results, strict=True)])
            made = turns.made()
        except Refused:
            return i
        name = next(f"k{n}" for n in range(len(self.kernels), 2 * len(self.kernels) + 1) if f"k{n}" not in self.kernels)
        self.kernels[name] = replace(made, name=name)
        self.same.update(zip(i.results, turns.first, strict=False))
        return Instruction(launch, tuple(turns.operands), (), {"kernel": name, "sizes": turns.sizes}, (), i.loc)

    def is_read(self, buffer: tuple[Value, Value], loop: Instruction) -> bool:
        """Whether what a loop leaves in a buffer may be read by something else: the buffer, and its name behind the loop."""
        names = {*buffer, *(v for v, known in self.same.items() if known is buffer[0])}
        others = [i for i in walk(self.program.body) if i is not loop]
        given = [v for i in others for r in i.regions for v in r.results]
        read = [v for i in others if not isinstance(i.op, Free) for v in i.operands]
        return not names.isdisjoint((*given, *read, *self.program.results))


@dataclass
class Nest:
    """The loops of a kernel around what it does with an element. ``outside``: what is computed before each of them."""

    loops: list[Instruction] = field(default_factory=list)
    outside: list[list[Instruction]] = field(default_factory=list)
    body: tuple[Instruction, ...] = ()

    @property
    def extents(self) -> tuple[Any, ...]:
        """How many times each loop runs."""
        made = {v: i for before in self.outside for i in before for v in i.results}
        counts = [made[i.operands[0]].params if i.operands[0] in made else {} for i in self.loops]
        return tuple(params.get("size", params.get("value")) for params in counts)

    @property
    def counters(self) -> tuple[Value, ...]:
        return tuple(i.regions[0].parameters[0] for i in self.loops)


def nest_of(kernel: Function) -> Nest:
    """A kernel as one nest of loops. Raises Refused."""
    found, block = Nest(), kernel.body
    while any(i.regions for i in block.instructions):
        (*before, loop) = block.instructions
        is_plain = isinstance(loop.op, For) and len(loop.operands) == 1 and set(loop.params) <= {"independent", "short"}
        if not is_plain or not all(isinstance(i.op, PURE) and not i.regions for i in before):
            raise Refused
        found.loops.append(loop)
        found.outside.append(before)
        block = loop.regions[0]
    if not all(isinstance(i.op, (*PURE, Store, Prefetch)) for i in block.instructions):
        raise Refused
    if any(isinstance(i.op, AtomicAdd) or getattr(i.op, "masked", False) for i in walk(kernel.body)):
        raise Refused
    found.body = block.instructions
    return found


def _sized(block: Block, sizes: Mapping[str, int | str]) -> Block:
    """A kernel's body whose extents have other names, or are numbers."""
    made = []
    for i in block.instructions:
        regions = tuple(_sized(r, sizes) for r in i.regions)
        if isinstance(i.op, Extent):
            size = sizes[i.params["size"]]
            is_known = isinstance(size, int)
            params = {"value": size, "dtype": I64} if is_known else {"size": size}
            made.append(replace(i, op=OPS["const" if is_known else "extent"], params=params))
        else:
            made.append(replace(i, regions=regions))
    return Block(block.parameters, tuple(made), block.results)


@dataclass
class Part:
    """A launch of the loop's body: the ``nest`` of its kernel, the operand ``of`` each parameter, what the values of its kernel
    are in the new one (``env``), and what is computed outside its loops, but anew at each turn (``late``)."""

    nest: Nest
    of: dict[Value, Value]
    env: dict[Value, Value] = field(default_factory=dict)
    late: list[Instruction] = field(default_factory=list)

    def written(self) -> set[Value]:
        return {self.of[i.operands[1]] for i in self.nest.body if isinstance(i.op, Store)}


class Turns:
    """A loop of a program as a kernel. ``operands`` and ``sizes`` of its launch; ``needed``: which buffers are read behind it.

    ``buffers``: what the body calls what the loop carries, and buffers from outside that it writes; ``first``: these outside.
    """

    def __init__(self, program: _Program, loop: Instruction, needed: Sequence[bool]) -> None:
        (region,) = loop.regions
        launches = [i for i in region.instructions if isinstance(i.op, Launch)]
        plain = all(isinstance(i.op, Launch | Copy | Row | Alloc | Free) for i in region.instructions)
        if not launches or not plain or any(i.params.get("failures") for i in launches):
            raise Refused
        self.loop, self.region = loop, region
        self.index, *first = loop.operands
        self.parts: dict[Instruction, Part] = {}
        self.types: dict[Value, RefType] = {}
        self.sizes: list[int | str] = []
        for i in launches:
            sizes = {f"s{k}": e if isinstance(e, int) else self.size(e) for k, e in enumerate(i.params["sizes"])}
            kernel = rename(program.kernels[i.params["kernel"]], sizes)
            kernel = replace(kernel, body=_sized(kernel.body, sizes))
            self.parts[i] = Part(nest_of(kernel), dict(zip(kernel.parameters, i.operands, strict=True)))
            self.types |= {v: p.type for p, v in zip(kernel.parameters, i.operands, strict=True) if isinstance(p.type, RefType)}
        self.rows = {i.result: i for i in region.instructions if isinstance(i.op, Row)}
        self.local = {i.result for i in region.instructions if isinstance(i.op, Alloc)}
        self.written = {v for part in self.parts.values() for v in part.written()}
        self.written |= {i.operands[1] for i in region.instructions if isinstance(i.op, Copy)}
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
        """The kernel's name of an extent of the program."""
        if extent not in self.sizes:
            self.sizes.append(extent)
        return f"s{self.sizes.index(extent)}"

    def space(self) -> tuple[int | str, ...]:
        """The extents of the loops of all kernels, which those of all that is carried are."""
        found = {part.nest.extents for part in self.parts.values()}
        own = [v for v in (*self.buffers, *self.local) if v is not self.index]
        shapes = {self.types[v].shape for v in own if v in self.types}
        if len(found) != 1 or shapes != found or len({v.type.shape for v in own if isinstance(v.type, RefType)}) != 1:
            raise Refused
        if not all(isinstance(v.type, RefType) and v.type.layout == "c" for v in (*own, *self.first)):
            raise Refused
        return next(iter(found))

    # the kernel

    def parameter(self, operand: Value, t: Type, name: str = "") -> Value:
        """The kernel's parameter for an operand of the launch."""
        if operand not in self.operands:
            self.operands.append(operand)
            self.parameters.append(Value(t, name or operand.name))
        return self.parameters[self.operands.index(operand)]

    def made(self) -> Function:
        """Raises Refused."""
        b = Builder()
        is_known = isinstance(self.length, int)
        params = {"value": self.length, "dtype": I64} if is_known else {"size": self.length}
        (self.count,) = b.emit(OPS["const" if is_known else "extent"], (), params)
        frame, *others = self.parts.values()
        builders, varying = [b], set[Value]()
        for depth, loop in enumerate(frame.nest.loops):
            for part in (frame, *others):
                self.before(part, depth, builders[-1], varying)
            counter = loop.regions[0].parameters[0]
            made = Value(counter.type, counter.name)
            for part in (frame, *others):
                part.env[part.nest.counters[depth]] = made
            builders.append(Builder())
        self.at = tuple(frame.env[c] for c in frame.nest.counters)
        self.element(builders[-1])
        for loop, inner, outer in zip(reversed(frame.nest.loops), reversed(builders[1:]), reversed(builders[:-1]), strict=True):
            region = Block((frame.env[loop.regions[0].parameters[0]],), tuple(inner.instructions), ())
            outer.emit(OPS["for"], (frame.env[loop.operands[0]],), dict(loop.params), (region,))
        return Function("", Block(tuple(self.parameters), tuple(b.instructions), ()), "kernel")

    def before(self, part: Part, depth: int, b: Builder, varying: set[Value]) -> None:
        """What a kernel computes before one of its loops."""
        for i in part.nest.outside[depth]:
            if (isinstance(i.op, Load) and self.turns(part.of[i.operands[0]])) or not varying.isdisjoint(i.operands):
                varying.update(i.results)
                part.late.append(i)
            else:
                self.again(part, b, i)

    def turns(self, operand: Value) -> bool:
        """Whether what an operand of a launch holds is another thing at each turn."""
        return operand is self.index or operand in self.rows or operand in self.buffers or operand in self.local

    def again(self, part: Part, b: Builder, i: Instruction) -> None:
        """An instruction of an old kernel, on what its values are in the new one."""
        operands = [part.env[v] if v in part.env else self.kept(part, v) for v in i.operands]
        part.env.update(zip(i.results, b.at(i.loc).emit(i.op, operands, dict(i.params)), strict=True))

    def kept(self, part: Part, v: Value) -> Value:
        """A parameter of an old kernel for what the loop captures."""
        if v not in part.of or part.of[v] in (*self.first, *self.filled) or self.turns(part.of[v]):
            raise Refused
        return self.parameter(part.of[v], v.type, v.name)

    def element(self, b: Builder) -> None:
        """What becomes of one element, from the first turn to the last."""
        dtypes = [v.type.dtype for v in self.buffers]
        before = [Value(ArrayType(d), v.name) for d, v in zip(dtypes, self.buffers, strict=True)]
        inner, turn = Builder(), Value(ArrayType(I64), "t")
        self.here = turn
        if self.loop.params["reverse"]:
            (one,) = inner.emit(OPS["const"], (), {"value": 1, "dtype": I64})
            (last,) = inner.emit(OPS["sub"], (self.count, one))
            (self.here,) = inner.emit(OPS["sub"], (last, turn))
        self.content = dict(zip(self.buffers, before, strict=True))
        self.turn(inner)
        ends = (*self.region.results, *self.buffers[len(self.region.parameters) :])
        if any(v not in self.content for v in ends):
            raise Refused
        after = [self.content[v] for v in ends]
        used = {v for i in inner.instructions for v in i.operands}
        kept = {k for k, need in enumerate(self.needed) if need or before[k] in used}
        while more := {k for k, v in enumerate(before) for j in kept if after[j] is v} - kept:
            kept |= more
        those = sorted(kept)
        refs = {k: self.parameter(self.first[k], RefType(dtypes[k], self.shape)) for k in those}
        first = [b.emit(OPS["load"], (refs[k], *self.at))[0] for k in those]
        region = Block((turn, *(before[k] for k in those)), tuple(inner.instructions), tuple(after[k] for k in those))
        ends = b.at(self.loop.loc).emit(OPS["for"], (self.count, *first), {} if those else {"ordered": True}, (region,))
        for k, value in zip(those, ends, strict=True):
            if self.needed[k]:
                b.emit(OPS["store"], (value, refs[k], *self.at))

    def turn(self, b: Builder) -> None:
        """One turn; ``content`` is what buffers of the loop hold at this element."""
        for i in self.region.instructions:
            if isinstance(i.op, Copy):
                self.put(b, i.operands[1], self.copied(b, i.operands[0]))
            elif isinstance(i.op, Launch):
                part = self.parts[i]
                for k in (*part.late, *part.nest.body):
                    self.step(part, b, k)

    def step(self, part: Part, b: Builder, i: Instruction) -> None:
        if isinstance(i.op, Store):
            value, ref, *index = i.operands
            if tuple(part.env.get(v) for v in index) != self.at:
                raise Refused
            self.put(b, part.of[ref], part.env[value] if value in part.env else self.kept(part, value))
        elif isinstance(i.op, Load) and self.turns(part.of[i.operands[0]]):
            ref, *index = i.operands
            part.env[i.result] = self.got(b.at(i.loc), part.of[ref], tuple(part.env[v] for v in index))
        elif not isinstance(i.op, Prefetch):
            self.again(part, b, i)

    def copied(self, b: Builder, source: Value) -> Value:
        """This element of what is copied."""
        if self.turns(source):
            return self.got(b, source, self.at)
        is_array = isinstance(source.type, RefType) and len(source.type.shape) == len(self.shape)
        if source in (*self.first, *self.filled) or not is_array:
            raise Refused
        return b.emit(OPS["load"], (self.parameter(source, RefType(source.type.dtype, self.shape)), *self.at))[0]

    def got(self, b: Builder, ref: Value, index: tuple[Value, ...]) -> Value:
        """What a buffer of the loop holds."""
        if ref is self.index:
            return self.here
        if ref in self.content:
            if index != self.at:
                raise Refused
            return self.content[ref]
        if ref not in self.rows or self.rows[ref].operands[0] in self.filled:
            raise Refused
        return b.emit(OPS["load"], (self.sequence(ref), self.here, *index))[0]

    def put(self, b: Builder, ref: Value, value: Value) -> None:
        if ref in self.rows:
            b.emit(OPS["store"], (value, self.sequence(ref), self.here, *self.at))
        elif ref not in self.buffers and ref not in self.local:
            raise Refused
        self.content[ref] = value

    def sequence(self, ref: Value) -> Value:
        """The parameter for the sequence of which a buffer is a row."""
        sequence, index = self.rows[ref].operands
        if index is not self.index or not isinstance(sequence.type, RefType) or sequence in self.first:
            raise Refused
        shape = self.types[ref].shape if ref in self.types else self.shape
        return self.parameter(sequence, RefType(sequence.type.dtype, (self.length, *shape)))
