"""prepacked: pack loop-invariant right operands of matrix products once, before the loop.

Requires: a lowered module for the CPU. Keeps: its meaning. A right operand of a plain product in a loop that does not write it
is packed into panels before the outermost loop in which it is invariant. The product in the loop reads the panels
(``prepack.kernels``), or the operand itself where its extents make packing not pay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pullback.codegen.analysis.steps import kernel_accesses, owners, written
from pullback.codegen.cpu.matmul.prepack.kernels import Prepacked
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Function, Instruction, Module, walk
from pullback.ir.core.types import Extent, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.library.routines import gemm
from pullback.ir.ops.program import Launch, Repeat, RepeatWhile, View, launch
from pullback.ir.shapes.extents import product

PACK = "pack_"
"""Prefix of the names of packing kernels."""


def prepacked(module: Module, machine: Target) -> Module:
    """Return the module with such operands packed, on machines with FMA."""
    program, *kernels = module.functions
    plain = {k.name: k for k in kernels if _is_plain(k)}
    if not plain or not machine.has_fma:
        return module
    work = _Work(module, plain, machine)
    body = work.block(program.body, ())
    if not work.kernels:
        return module
    program = replace(program, body=body)
    launched = {i.params["kernel"] for i in walk(body) if isinstance(i.op, Launch)}
    return Module((program, *(k for k in kernels if k.name in launched), *work.kernels.values()))


def packs(step: Instruction) -> bool:
    """Return whether a step of a program launches a packing kernel."""
    return isinstance(step.op, Launch) and step.params["kernel"].startswith(PACK)


def _is_plain(kernel: Function) -> bool:
    """Return whether a kernel is one product of real dense matrices whose left operand is not transposed."""
    if [i.op for i in kernel.instructions] != [gemm]:
        return False
    (i,) = kernel.instructions
    return all(map(_is_dense, i.operands)) and not i.params["transpose_a"] and not gemm.pairs([v.type for v in i.operands])


def _is_dense(ref: Value) -> bool:
    return isinstance(ref.type, RefType) and ref.type.layout == "c"


@dataclass(eq=False)
class _Loop:
    """A loop: the buffers it writes, the values it defines, the steps inserted before it, and the operands packed there."""

    writes: frozenset[Value]
    defined: frozenset[Value]
    before: Builder
    packed: dict[tuple[object, ...], tuple[Value, ...]]


class _Work:
    def __init__(self, module: Module, plain: Mapping[str, Function], machine: Target) -> None:
        program, *kernels = module.functions
        self.program, self.plain, self.machine = program, plain, machine
        self.owner = owners(program)
        self.accesses = {k.name: (*kernel_accesses(k), False) for k in kernels}
        self.makers = {v: i for i in walk(program.body) for v in i.results}
        self.kernels: dict[str, Function] = {}

    def block(self, block: Block, loops: tuple[_Loop, ...]) -> Block:
        """Rewrite the steps of a block inside ``loops``, outermost first."""
        instructions: list[Instruction] = []
        for i in block.instructions:
            if isinstance(i.op, Repeat | RepeatWhile):
                instructions += self.loop(i, loops)
            elif isinstance(i.op, Launch) and loops and i.params["kernel"] in self.plain:
                instructions.append(self.launch(i, loops))
            elif i.regions:
                instructions.append(replace(i, regions=tuple(self.block(r, loops) for r in i.regions)))
            else:
                instructions.append(i)
        return replace(block, instructions=tuple(instructions))

    def loop(self, i: Instruction, loops: tuple[_Loop, ...]) -> list[Instruction]:
        """Rewrite a loop; return it with the packing before it and the release of the panels after it."""
        writes = written(self.program, i, self.owner, self.accesses)
        inside = frozenset(v for r in i.regions for v in (*r.parameters, *(x for k in walk(r) for x in _defined(k))))
        loop = _Loop(writes, inside, Builder(i.loc), {})
        rewritten = replace(i, regions=tuple(self.block(r, (*loops, loop)) for r in i.regions))
        after = Builder(i.loc)
        for buffers in loop.packed.values():
            for ref in buffers:
                after.free(ref)
        return [*loop.before.instructions, rewritten, *after.instructions]

    def launch(self, i: Instruction, loops: Sequence[_Loop]) -> Instruction:
        """Rewrite the launch of a product to read panels that are packed before the outermost loop in which its operand is
        invariant."""
        kernel, sizes = self.plain[i.params["kernel"]], i.params["sizes"]
        (plain,) = kernel.instructions
        left, right, out = plain.operands
        source, views = self.source(i.operands[kernel.parameters.index(right)])
        loop = next(
            (candidate for candidate in loops if source not in candidate.defined and self.owner[source] not in candidate.writes),
            None,
        )
        if loop is None or not _is_dense(source):
            return i
        rows, depth, columns = (_extent(e, sizes) for e in (out.type.shape[0], left.type.shape[1], out.type.shape[1]))
        form, is_transposed = Prepacked(out.type.dtype, self.machine), plain.params["transpose_b"]
        key = source, right.type.dtype, is_transposed, rows, depth, columns
        if key not in loop.packed:
            loop.packed[key] = self.pack(loop.before.at(i.loc), form, (source, views), is_transposed, (depth, columns, rows))
        buffers = loop.packed[key]
        name = f"{kernel.name}_packed"
        if name not in self.kernels:
            self.kernels[name] = form.multiply(name, kernel, len(sizes))
        params = {**i.params, "kernel": name, "sizes": (*sizes, *buffers[0].type.shape)}
        return replace(i, operands=(*i.operands, *buffers), params=params)

    def pack(
        self, b: Builder, form: Prepacked, operand: tuple[Value, Sequence[Instruction]], is_transposed: bool,
        sizes: Sequence[Extent]
    ) -> tuple[Value, ...]:  # fmt: skip
        """Emit the packing of an operand; return its buffers."""
        ref, views = operand
        for view in views:
            ref = b.emit(view.op, (ref,), dict(view.params))[0]
        named = zip(("packed", "known"), form.buffers(*sizes[:2]), strict=True)
        buffers = tuple(b.at(b.loc, name).alloc(dtype=dtype, shape=shape) for name, (dtype, shape) in named)
        name = f"{PACK}{form.dtype.name}_{'nt'[is_transposed]}"
        if name not in self.kernels:
            self.kernels[name] = form.pack(name, is_transposed)
        b.emit(launch, (ref, *buffers), {"kernel": name, "sizes": (*sizes, *buffers[0].type.shape)})
        return buffers

    def source(self, value: Value) -> tuple[Value, list[Instruction]]:
        """Return the buffer or row that a reference is a view of, and the views in between."""
        views: list[Instruction] = []
        while value in self.makers and isinstance(self.makers[value].op, View):
            views.append(self.makers[value])
            value = self.makers[value].operands[0]
        return value, views[::-1]


def _defined(i: Instruction) -> tuple[Value, ...]:
    return (*i.results, *(v for r in i.regions for v in r.parameters))


def _extent(extent: Extent, sizes: Sequence[Extent]) -> Extent:
    """Return an extent of a kernel as an extent of the program."""
    program_extent = sizes[int(extent[1:])] if isinstance(extent, str) else extent
    return product(program_extent) if isinstance(program_extent, tuple | list) else program_extent
