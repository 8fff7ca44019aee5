"""Order clocks: what is computed before a clock is read has been computed then, and what is computed after it has not begun.

Values of array programs are computed when a kernel needs them, in any order. All values that are available before a ``clock`` and
used after it pass through it, so that no kernel can hold computations of both sides.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.types import ArrayType
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Clock


def order_clocks(function: Function) -> Function:
    """Pass the values that are used on both sides of each clock through it.

    Requires: a func. Keeps: the order of the instructions, and clocks through which values pass.
    """
    if not any(isinstance(i.op, Clock) for i in walk(function.body)):
        return function
    return replace(function, body=_ordered(function.body, {}))


def _ordered(block: Block, renamed: dict[Value, Value]) -> Block:
    """Return a block with ordered clocks. ``renamed``: the values to read in place of those of blocks around it."""
    names = dict(renamed)
    constants = {v for i in block.instructions if not i.operands and not i.regions for v in i.results}
    instructions = []
    for i, live in zip(block.instructions, _live_after(block), strict=True):
        operands = tuple(names.get(v, v) for v in i.operands)
        regions = tuple(_ordered(region, names) for region in i.regions)
        i = replace(i, operands=operands, regions=regions)
        if isinstance(i.op, Clock):
            used = () if i.operands else live
            passed = [v for v in used if v not in i.results and v not in constants and isinstance(v.type, ArrayType)]
            after = [Value(v.type, v.name) for v in passed]
            i = replace(i, operands=(*operands, *(names.get(v, v) for v in passed)), results=(*i.results, *after))
            names.update(zip(passed, after, strict=True))
        instructions.append(i)
    return Block(block.parameters, tuple(instructions), tuple(names.get(v, v) for v in block.results))


def _live_after(block: Block) -> list[list[Value]]:
    """Return the values that are used after each instruction, and are not results of a later one, in the order of their uses from
    the last one on."""
    live = dict.fromkeys(block.results)
    after: list[list[Value]] = []
    for i in reversed(block.instructions):
        after.append(list(live) if isinstance(i.op, Clock) else [])
        for v in i.results:
            live.pop(v, None)
        live.update(dict.fromkeys(_used(i)))
    return after[::-1]


def _used(instruction: Instruction) -> list[Value]:
    """Return the values from around it that an instruction uses, its regions included."""
    used = list(instruction.operands)
    for region in instruction.regions:
        defined = {*region.parameters, *(v for i in region.instructions for v in i.results)}
        inside = [*region.results, *(v for i in region.instructions for v in _used(i))]
        used += [v for v in inside if v not in defined]
    return used
