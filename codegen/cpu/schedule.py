"""schedule: says how the CPU runs a kernel's loops, and spells out what it has no instruction for.

Requires: a lowered kernel. Keeps: its meaning. The outermost loops are cut into chunks that threads share (``chunk``), what is
read across memory is read through tiles (``transposes``), the innermost loops whose iterations are independent become vector
loops, the others run serially, and short reductions are computed four rows at a time (``jam``); functions spelled ``recipe``
become kernel ops, shared parts once. Half-precision functions are computed in float32.
"""

from __future__ import annotations

import functools
from dataclasses import replace

from pullback.codegen.analysis.independence import is_independent
from pullback.codegen.cpu.expand_functions import spelled_out
from pullback.codegen.cpu.loops.distribute_loops import phases
from pullback.codegen.cpu.loops.parallelize import chunk
from pullback.codegen.cpu.loops.shared_functions import Told
from pullback.codegen.cpu.loops.split_index_sets import borders
from pullback.codegen.cpu.loops.stage_rows import stage_rows
from pullback.codegen.cpu.loops.tile_transposes import transposes
from pullback.codegen.cpu.loops.unroll_and_jam import jam
from pullback.codegen.cpu.matmul.expand import products
from pullback.codegen.cpu.matmul.library_or_generated import of_library
from pullback.codegen.targets import PROCESSORS, Target
from pullback.ir.core.op import Op
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.ops.kernel.float_parts import cold_function
from pullback.ir.ops.kernel.functions import Call, function_
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.library.routines import Library

ANY = Target(64)


def schedule(kernel: Function, processor: str = "", machine: Target = ANY, told: Told | None = None) -> Function:
    """Return the kernel as the CPU runs it. ``processor``: LLVM's name of the CPU, of any if empty; ``machine``: what matrix
    products are written for; ``told``: called with the functions that these share with other kernels, at once, as ``Functions``
    has it."""
    known = PROCESSORS.get(processor)
    early = None if told is None else lambda i, steps: told(_apart(i), steps)
    apart, inside = _without(products(of_library(kernel, machine).body, machine, early), function_)
    rarely, often = _without(chunk(spelled_out(inside, known)), cold_function)
    found = phases(_map(jam(stage_rows(transposes(borders(often)), machine.vector_bytes))), known)
    return Function(kernel.name, replace(found, instructions=(*map(_apart, apart), *rarely, *found.instructions)), kernel.kind)


def _without(block: Block, op: Op) -> tuple[tuple[Instruction, ...], Block]:
    """The instructions of an op at the top of a kernel, and what is left."""
    apart = tuple(i for i in block.instructions if i.op is op)
    return apart, replace(block, instructions=tuple(i for i in block.instructions if i.op is not op)) if apart else block


@functools.cache
def _of_its_own(body: Block) -> Block:
    """The body of a function that kernels share."""
    return _map(spelled_out(body))


def _apart(i: Instruction) -> Instruction:
    return replace(i, regions=tuple(map(_of_its_own, i.regions)))


def _map(block: Block) -> Block:
    return _mapped(block)[0]


def _mapped(block: Block) -> tuple[Block, bool]:
    """A block whose loops are told how they run, and whether something in it keeps loops around it from being vectors."""
    made, is_blocked = [], False
    for i in block.instructions:
        is_blocked = is_blocked or isinstance(i.op, Library | Call) or may_be_vector(i)
        if not i.regions:
            made.append(i)
            continue
        mapped = [_mapped(r) for r in i.regions]
        blocked = any(inside for _, inside in mapped)
        is_blocked = is_blocked or blocked
        how = {"map": "vector" if may_be_vector(i) and not blocked else "serial"} if isinstance(i.op, For) else {}
        if "map" in i.params:
            how = {}
        regions = tuple(region for region, _ in mapped)
        made.append(Instruction(i.op, i.operands, i.results, {**i.params, **how}, regions, i.loc))
    return Block(block.parameters, tuple(made), block.results), is_blocked


def may_be_vector(i: Instruction) -> bool:
    """Whether lanes can run a loop's iterations: independent ones, and those of a scan."""
    return is_independent(i) or bool(i.params.get("scan"))
