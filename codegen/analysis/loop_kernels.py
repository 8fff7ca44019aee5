"""repeated: mark the kernels that are launched repeatedly, in loops of their program.

Requires: a lowered module for the CPU. Keeps: its meaning. A kernel that is launched both in a loop and elsewhere becomes two,
so that each suits its launches. Between the iterations of a loop the threads stay awake: the outermost loops of a kernel in a
program's loop are marked ``hot``, and are worth running in parallel at smaller trip counts (``chunk``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction, Module
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.program import branch, launch


def repeated(module: Module) -> Module:
    """Return the module with the repeatedly launched kernels marked."""
    program, *kernels = module.functions
    inside, outside = _launched(program.body, False)
    if not inside:
        return module
    copies = {name: f"{name}_again" for name in inside & outside}
    functions: list[Function] = []
    for kernel in kernels:
        if kernel.name in inside:
            functions.append(replace(_marked(kernel), name=copies.get(kernel.name, kernel.name)))
        if kernel.name not in inside or kernel.name in copies:
            functions.append(kernel)
    if copies:
        program = replace(program, body=_renamed(program.body, copies, False))
    return Module((program, *functions))


def kernels_in_loops(program: Function) -> set[str]:
    """Return the names of the kernels that loops of a program launch."""
    return _launched(program.body, False)[0]


def _launched(block: Block, is_inside: bool) -> tuple[set[str], set[str]]:
    """Return the kernels that are launched in loops, and the ones that are launched elsewhere."""
    inside, outside = set[str](), set[str]()
    for i in block.instructions:
        if i.op is launch:
            (inside if is_inside else outside).add(i.params["kernel"])
        for region in i.regions:
            launched = _launched(region, is_inside or i.op is not branch)
            inside |= launched[0]
            outside |= launched[1]
    return inside, outside


def _renamed(block: Block, names: Mapping[str, str], is_inside: bool) -> Block:
    """Return a block whose loops launch kernels by other names."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        if i.op is launch and is_inside and i.params["kernel"] in names:
            i = replace(i, params={**i.params, "kernel": names[i.params["kernel"]]})
        elif i.regions:
            i = replace(i, regions=tuple(_renamed(r, names, is_inside or i.op is not branch) for r in i.regions))
        instructions.append(i)
    return replace(block, instructions=tuple(instructions))


def _marked(kernel: Function) -> Function:
    instructions = [
        replace(i, params={**i.params, "hot": True}) if isinstance(i.op, For) else i for i in kernel.body.instructions
    ]
    return replace(kernel, body=replace(kernel.body, instructions=tuple(instructions)))
