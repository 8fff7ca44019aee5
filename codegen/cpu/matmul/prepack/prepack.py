"""prepacked: operands of products that stay the same in a loop are packed once before it.

Requires: a lowered module for the CPU. Keeps: its meaning. A right operand of a plain product in a loop, which the loop does not
write, is brought into the order in which tiles read it before the outermost loop that leaves it alone; the product in the loop
reads that (``prepacked_kernels``), or the operand itself where it does not pay, by its extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pullback.codegen.analysis.steps import kernel_accesses, owners, written
from pullback.codegen.cpu.matmul.prepack.kernels import Prepacked
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Function, Instruction, Module, walk
from pullback.ir.core.types import Extent, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.library.routines import gemm
from pullback.ir.ops.program import Launch, Repeat, RepeatWhile, View, launch
from pullback.ir.shapes.extents import product

PACK = "pack_"
"""What the names of kernels that pack begin with."""


def prepacked(module: Module, machine: Target) -> Module:
    """The module with such operands packed, for machines that multiply and add in one."""
    program, *kernels = module.functions
    plain = {k.name: k for k in kernels if _is_plain(k)}
    if not plain or not machine.has_fma:
        return module
    work = _Work(module, plain, machine)
    body = work.block(program.body, ())
    if not work.made:
        return module
    program = replace(program, body=body)
    launched = {i.params["kernel"] for i in walk(body) if isinstance(i.op, Launch)}
    return Module((program, *(k for k in kernels if k.name in launched), *work.made.values()))


def packs(step: Instruction) -> bool:
    """Whether a step of a program is a launch that packs."""
    return isinstance(step.op, Launch) and step.params["kernel"].startswith(PACK)


def _is_plain(kernel: Function) -> bool:
    """Whether all that a kernel does is a product of real matrices, of which the left one is not stored transposed."""
    if [i.op for i in kernel.instructions] != [gemm]:
        return False
    (i,) = kernel.instructions
    return all(map(_is_dense, i.operands)) and not i.params["transpose_a"] and not gemm.pairs([v.type for v in i.operands])


def _is_dense(ref: Value) -> bool:
    return isinstance(ref.type, RefType) and ref.type.layout == "c"


@dataclass(eq=False)
class _Loop:
    """A loop: what it writes, as buffers that were made; and what is done before it."""

    writes: frozenset[Value]
    inside: frozenset[Value]
    before: Builder
    packed: dict[tuple[object, ...], tuple[Value, ...]]


class _Work:
    def __init__(self, module: Module, plain: Mapping[str, Function], machine: Target) -> None:
        program, *kernels = module.functions
        self.program, self.plain, self.machine = program, plain, machine
        self.owner = owners(program)
        self.accesses = {k.name: (*kernel_accesses(k), False) for k in kernels}
        self.makers = {v: i for i in walk(program.body) for v in i.results}
        self.made: dict[str, Function] = {}

    def block(self, block: Block, loops: tuple[_Loop, ...]) -> Block:
        made: list[Instruction] = []
        for i in block.instructions:
            if isinstance(i.op, Repeat | RepeatWhile):
                made += self.loop(i, loops)
            elif isinstance(i.op, Launch) and loops and i.params["kernel"] in self.plain:
                made.append(self.launch(i, loops))
            elif i.regions:
                made.append(replace(i, regions=tuple(self.block(r, loops) for r in i.regions)))
            else:
                made.append(i)
        return replace(block, instructions=tuple(made))

    def loop(self, i: Instruction, loops: tuple[_Loop, ...]) -> list[Instruction]:
        """A loop, with what is packed around it."""
        writes = written(self.program, i, self.owner, self.accesses)
        inside = frozenset(v for r in i.regions for v in (*r.parameters, *(x for k in walk(r) for x in _defined(k))))
        loop = _Loop(writes, inside, Builder(i.loc), {})
        made = replace(i, regions=tuple(self.block(r, (*loops, loop)) for r in i.regions))
        after = Builder(i.loc)
        for buffers in loop.packed.values():
            for ref in buffers:
                after.free(ref)
        return [*loop.before.instructions, made, *after.instructions]

    def launch(self, i: Instruction, loops: Sequence[_Loop]) -> Instruction:
        """A product in loops, by an operand that was packed before the outermost one that it can be."""
        kernel, sizes = self.plain[i.params["kernel"]], i.params["sizes"]
        (plain,) = kernel.instructions
        left, right, out = plain.operands
        source, views = self.source(i.operands[kernel.parameters.index(right)])
        loop = next((each for each in loops if source not in each.inside and self.owner[source] not in each.writes), None)
        if loop is None or not _is_dense(source):
            return i
        rows, terms, columns = (_extent(e, sizes) for e in (out.type.shape[0], left.type.shape[1], out.type.shape[1]))
        of, is_turned = Prepacked(out.type.dtype, self.machine), plain.params["transpose_b"]
        key = source, right.type.dtype, is_turned, rows, terms, columns
        if key not in loop.packed:
            loop.packed[key] = self.pack(loop.before.at(i.loc), of, (source, views), is_turned, (terms, columns, rows))
        buffers = loop.packed[key]
        name = f"{kernel.name}_packed"
        if name not in self.made:
            self.made[name] = of.multiply(name, kernel, len(sizes))
        params = {**i.params, "kernel": name, "sizes": (*sizes, *buffers[0].type.shape)}
        return replace(i, operands=(*i.operands, *buffers), params=params)

    def pack(
        self, b: Builder, of: Prepacked, operand: tuple[Value, Sequence[Instruction]], is_turned: bool, sizes: Sequence[Extent]
    ) -> tuple[Value, ...]:  # fmt: skip
        """The buffers of an operand that is packed here."""
        ref, views = operand
        for view in views:
            ref = b.emit(view.op, (ref,), dict(view.params))[0]
        named = zip(("packed", "known"), of.buffers(*sizes[:2]), strict=True)
        buffers = tuple(b.at(b.loc, name).alloc(dtype=dtype, shape=shape) for name, (dtype, shape) in named)
        name = f"{PACK}{of.dtype.name}_{'nt'[is_turned]}"
        if name not in self.made:
            self.made[name] = of.pack(name, is_turned)
        b.emit(launch, (ref, *buffers), {"kernel": name, "sizes": (*sizes, *buffers[0].type.shape)})
        return buffers

    def source(self, value: Value) -> tuple[Value, list[Instruction]]:
        """The buffer or row that a reference is a view of, and these views."""
        views: list[Instruction] = []
        while value in self.makers and isinstance(self.makers[value].op, View):
            views.append(self.makers[value])
            value = self.makers[value].operands[0]
        return value, views[::-1]


def _defined(i: Instruction) -> tuple[Value, ...]:
    return (*i.results, *(v for r in i.regions for v in r.parameters))


def _extent(extent: Extent, sizes: Sequence[Extent]) -> Extent:
    """An extent of a kernel as the program has it."""
    found = sizes[int(extent[1:])] if isinstance(extent, str) else extent
    return product(found) if isinstance(found, tuple | list) else found
