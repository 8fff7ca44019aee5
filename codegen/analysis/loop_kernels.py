"""repeated: which kernels run again and again, in loops of their program.

Requires: a lowered module for the CPU. Keeps: its meaning. A kernel that is launched both in a loop and elsewhere becomes two, so
that either suits its place. Between the runs of a loop the threads stay awake: the outermost loops of a kernel in one are marked
``hot``, and are worth sharing out when they are shorter (``chunk``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction, Module
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.ops.program import branch, launch


def repeated(module: Module) -> Module:
    """The module with such kernels marked."""
    program, *kernels = module.functions
    inside, outside = _launched(program.body, False)
    if not inside:
        return module
    again = {name: f"{name}_again" for name in inside & outside}
    made: list[Function] = []
    for kernel in kernels:
        if kernel.name in inside:
            made.append(replace(_marked(kernel), name=again.get(kernel.name, kernel.name)))
        if kernel.name not in inside or kernel.name in again:
            made.append(kernel)
    if again:
        program = replace(program, body=_renamed(program.body, again, False))
    return Module((program, *made))


def kernels_in_loops(program: Function) -> set[str]:
    """The names of the kernels that loops of a program launch."""
    return _launched(program.body, False)[0]


def _launched(block: Block, is_inside: bool) -> tuple[set[str], set[str]]:
    """The kernels that are launched in loops, and those that are launched elsewhere."""
    inside, outside = set[str](), set[str]()
    for i in block.instructions:
        if i.op is launch:
            (inside if is_inside else outside).add(i.params["kernel"])
        for region in i.regions:
            found = _launched(region, is_inside or i.op is not branch)
            inside |= found[0]
            outside |= found[1]
    return inside, outside


def _renamed(block: Block, names: Mapping[str, str], is_inside: bool) -> Block:
    """A block that launches kernels in loops by other names."""
    made: list[Instruction] = []
    for i in block.instructions:
        if i.op is launch and is_inside and i.params["kernel"] in names:
            i = replace(i, params={**i.params, "kernel": names[i.params["kernel"]]})
        elif i.regions:
            i = replace(i, regions=tuple(_renamed(r, names, is_inside or i.op is not branch) for r in i.regions))
        made.append(i)
    return replace(block, instructions=tuple(made))


def _marked(kernel: Function) -> Function:
    made = [replace(i, params={**i.params, "hot": True}) if isinstance(i.op, For) else i for i in kernel.body.instructions]
    return replace(kernel, body=replace(kernel.body, instructions=tuple(made)))
