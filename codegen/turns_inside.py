"""Loops of a program whose body is one launch, as one launch with the loop inside, for targets on which launches cost.

The turns of the loop may run inside the kernel if each element goes its own way: what is carried is read and written at the
kernel's own element alone. Then an element's numbers stay in registers from turn to turn; rows of sequences are read and written
where they are, and what the loop captures is read as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.create import Constant
from pullback.ir.ops.elementwise import Elementwise
from pullback.ir.ops.kernel import AddTo, Extent, For, Load, Prefetch, Store
from pullback.ir.ops.program import Alloc, Copy, Free, Launch, Row, launch
from pullback.ir.ops.program import loop as repeat
from pullback.ir.structure import Block, Function, Instruction, Module, Value, walk
from pullback.ir.types import I64, ArrayType, RefType

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
        try:
            turns = Turns(self, i, [self.is_read(v, old) for v in zip(i.operands[1:], i.results, strict=True)])
            made = turns.made()
        except Refused:
            return i
        name = next(f"k{n}" for n in range(len(self.kernels), 2 * len(self.kernels) + 1) if f"k{n}" not in self.kernels)
        self.kernels[name] = replace(made, name=name)
        self.same.update(zip(i.results, turns.first, strict=True))
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
    def counters(self) -> tuple[Value, ...]:
        return tuple(i.regions[0].parameters[0] for i in self.loops)


def nest_of(kernel: Function) -> Nest:
    """A kernel as one nest of loops. Raises Refused."""
    found, block = Nest(), kernel.body
    while any(i.regions for i in block.instructions):
        (*before, loop) = block.instructions
        is_plain = isinstance(loop.op, For) and len(loop.operands) == 1 and set(loop.params) <= {"apart", "few"}
        if not is_plain or not all(isinstance(i.op, PURE) and not i.regions for i in before):
            raise Refused
        found.loops.append(loop)
        found.outside.append(before)
        block = loop.regions[0]
    if not all(isinstance(i.op, (*PURE, Store, Prefetch)) for i in block.instructions):
        raise Refused
    if any(isinstance(i.op, AddTo) or getattr(i.op, "masked", False) for i in walk(kernel.body)):
        raise Refused
    found.body = block.instructions
    return found


class Turns:
    """A loop of a program as a kernel. ``operands`` and ``sizes`` of its launch; ``needed``: which buffers are read behind it."""

    def __init__(self, program: _Program, loop: Instruction, needed: Sequence[bool]) -> None:
        (region,) = loop.regions
        launches = [i for i in region.instructions if isinstance(i.op, Launch)]
        plain = all(isinstance(i.op, Launch | Copy | Row) for i in region.instructions)
        if len(launches) != 1 or not plain or not loop.params["length"] or launches[0].params.get("failures"):
            raise Refused
        self.loop, self.region, self.launch = loop, region, launches[0]
        self.index, *self.first = loop.operands
        kernel = program.kernels[self.launch.params["kernel"]]
        self.nest = nest_of(kernel)
        self.types = dict(zip(self.launch.operands, (p.type for p in kernel.parameters), strict=True))
        self.of = dict(zip(kernel.parameters, self.launch.operands, strict=True))
        self.needed = needed
        self.rows = {i.result: i for i in region.instructions if isinstance(i.op, Row)}
        (length,) = loop.params["length"]
        self.length = length if isinstance(length, int) else f"s{len(self.launch.params['sizes'])}"
        self.sizes = [*self.launch.params["sizes"], *([] if isinstance(length, int) else [length])]
        self.operands: list[Value] = []
        self.parameters: list[Value] = []
        self.shape = self.space()

    def space(self) -> tuple[int | str, ...]:
        """The extents of the kernel's loops, which those of all that is carried are."""
        made = {v: i for i in walk(Block((), tuple(i for part in self.nest.outside for i in part))) for v in i.results}
        counts = [made.get(i.operands[0]) for i in self.nest.loops]
        found = tuple(i.params.get("size", i.params.get("value")) for i in counts if i is not None)
        shapes = {self.types[p].shape for p in self.region.parameters if p in self.types}
        outer = {p.type.shape for p in self.region.parameters}
        if len(found) != len(counts) or shapes != {found} or len(outer) != 1 or any(v.type.layout != "c" for v in self.first):
            raise Refused
        return found

    # the kernel

    def parameter(self, operand: Value, t: object, name: str = "") -> Value:
        """The kernel's parameter for an operand of the launch."""
        if operand not in self.operands:
            self.operands.append(operand)
            self.parameters.append(Value(t, name or operand.name))  # type: ignore[arg-type]
        return self.parameters[self.operands.index(operand)]

    def made(self) -> Function:
        """Raises Refused."""
        b = Builder()
        self.env: dict[Value, Value] = {}
        self.count = b.emit(OPS["const"], (), {"value": self.length, "dtype": I64})[0] if isinstance(self.length, int) else (
            b.emit(OPS["extent"], (), {"size": self.length})[0])  # fmt: skip
        self.late: list[Instruction] = []
        varying: set[Value] = set()
        bodies = [b]
        for loop, before in zip(self.nest.loops, self.nest.outside, strict=True):
            for i in before:
                turns = isinstance(i.op, Load) and self.turns(i.operands[0])
                if turns or not varying.isdisjoint(i.operands):
                    varying.update(i.results)
                    self.late.append(i)
                else:
                    self.again(bodies[-1], i)
            if loop.operands[0] in varying:
                raise Refused
            counter = loop.regions[0].parameters[0]
            self.env[counter] = Value(counter.type, counter.name)
            bodies.append(Builder())
        self.element(bodies[-1])
        for loop, inner, outer in zip(reversed(self.nest.loops), reversed(bodies[1:]), reversed(bodies[:-1]), strict=True):
            region = Block((self.env[loop.regions[0].parameters[0]],), tuple(inner.instructions), ())
            outer.emit(OPS["for"], (self.env[loop.operands[0]],), dict(loop.params), (region,))
        return Function("", Block(tuple(self.parameters), tuple(b.instructions), ()), "kernel")

    def turns(self, parameter: Value) -> bool:
        """Whether what a parameter of the old kernel holds is another thing at each turn."""
        operand = self.of[parameter]
        return operand is self.index or operand in self.rows or operand in self.region.parameters

    def again(self, b: Builder, i: Instruction) -> None:
        """An instruction of the old kernel that does not change from turn to turn."""
        operands = [self.env[v] if v in self.env else self.kept(v) for v in i.operands]
        self.env.update(zip(i.results, b.at(i.loc).emit(i.op, operands, dict(i.params)), strict=True))

    def kept(self, v: Value) -> Value:
        """A parameter of the old kernel for what the loop captures."""
        if v not in self.of or self.of[v] in self.first:
            raise Refused
        return self.parameter(self.of[v], v.type, v.name)

    def element(self, b: Builder) -> None:
        """What becomes of one element, from the first turn to the last."""
        at = tuple(self.env[c] for c in self.nest.counters)
        dtypes = [p.type.dtype for p in self.region.parameters]
        before = [Value(ArrayType(d), p.name) for d, p in zip(dtypes, self.region.parameters, strict=True)]
        inner, turn = Builder(), Value(ArrayType(I64), "t")
        here = turn
        if self.loop.params["reverse"]:
            (one,) = inner.emit(OPS["const"], (), {"value": 1, "dtype": I64})
            (last,) = inner.emit(OPS["sub"], (self.count, one))
            (here,) = inner.emit(OPS["sub"], (last, turn))
        after = self.turn(inner, at, here, dict(zip(self.region.parameters, before, strict=True)))
        used = {v for i in inner.instructions for v in i.operands}
        kept = {k for k, need in enumerate(self.needed) if need or before[k] in used}
        while more := {k for k, v in enumerate(before) for j in kept if after[j] is v} - kept:
            kept |= more
        those = sorted(kept)
        refs = {k: self.parameter(self.first[k], RefType(dtypes[k], self.shape)) for k in those}
        first = [b.emit(OPS["load"], (refs[k], *at))[0] for k in those]
        region = Block((turn, *(before[k] for k in those)), tuple(inner.instructions), tuple(after[k] for k in those))
        last = b.at(self.loop.loc).emit(OPS["for"], (self.count, *first), {} if those else {"ordered": True}, (region,))
        for k, value in zip(those, last, strict=True):
            if self.needed[k]:
                b.emit(OPS["store"], (value, refs[k], *at))

    def turn(self, b: Builder, at: tuple[Value, ...], here: Value, content: dict[Value, Value]) -> list[Value]:
        """One turn. ``content``: what buffers of the loop hold at this element."""
        for i in self.region.instructions:
            if isinstance(i.op, Copy):
                source, target = i.operands
                if source not in content:
                    raise Refused
                self.put(b, target, content[source], at, here, content)
            elif isinstance(i.op, Launch):
                for k in (*self.late, *self.nest.body):
                    self.step(b, k, at, here, content)
        if any(v not in content for v in self.region.results):
            raise Refused
        return [content[v] for v in self.region.results]

    def step(self, b: Builder, i: Instruction, at: tuple[Value, ...], here: Value, content: dict[Value, Value]) -> None:
        if isinstance(i.op, Store):
            value, ref, *index = i.operands
            if tuple(self.env.get(v) for v in index) != at:
                raise Refused
            self.put(b, self.of[ref], self.env[value] if value in self.env else self.kept(value), at, here, content)
        elif isinstance(i.op, Load) and self.turns(i.operands[0]):
            ref, *index = i.operands
            self.env[i.result] = self.got(b.at(i.loc), self.of[ref], tuple(self.env[v] for v in index), at, here, content)
        elif not isinstance(i.op, Prefetch):
            self.again(b, i)

    def got(
        self, b: Builder, ref: Value, index: tuple[Value, ...], at: tuple[Value, ...], here: Value, content: Mapping[Value, Value]
    ) -> Value:
        """What a buffer of the loop holds."""
        if ref is self.index:
            return here
        if ref in content:
            if index != at:
                raise Refused
            return content[ref]
        if ref not in self.rows or any(ref in self.written(i) for i in self.region.instructions):
            raise Refused
        return b.emit(OPS["load"], (self.sequence(ref), here, *index))[0]

    def put(
        self, b: Builder, ref: Value, value: Value, at: tuple[Value, ...], here: Value, content: dict[Value, Value]
    ) -> None:
        if ref in self.rows:
            b.emit(OPS["store"], (value, self.sequence(ref), here, *at))
        elif ref not in self.region.parameters:
            raise Refused
        content[ref] = value

    def written(self, i: Instruction) -> Sequence[Value]:
        """What a step of the loop writes."""
        if isinstance(i.op, Copy):
            return i.operands[1:]
        return [self.of[k.operands[1]] for k in self.nest.body if isinstance(k.op, Store)] if isinstance(i.op, Launch) else ()

    def sequence(self, ref: Value) -> Value:
        """The parameter for the sequence of which a buffer is a row."""
        row = self.rows[ref]
        sequence, index = row.operands
        if index is not self.index or not isinstance(sequence.type, RefType):
            raise Refused
        shape = self.types[ref].shape if ref in self.types else self.shape
        return self.parameter(sequence, RefType(sequence.type.dtype, (self.length, *shape)))

