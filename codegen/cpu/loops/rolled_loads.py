"""rolled_loads: read rolled elements by two masked loads of adjacent elements instead of a gather.

    load x, select(c, j - 1, j + 9)      ->      select(c, load_if(c, x, j - 1), load_if(not c, x, j + 9))

Requires: a kernel whose index sets are split. Keeps: its meaning. What remains of such reads is in the ends of rows, and in
loops that could not be split. Only reads along the last axis of a row-major array are rewritten, whose elements are adjacent.

Cost: one more load and a blend for each such read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pullback.codegen.analysis.independence import is_shifted
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, I64, RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import For, Load


def rolled_loads(kernel: Block) -> Block:
    """Return the body of a kernel with such loads rewritten."""
    if not any(k.op.name == "select" and k.result.type.dtype is I64 for k in walk(kernel)):
        return kernel
    return _rewrite(kernel, {})


def _rewrite(block: Block, chosen: Mapping[Value, Instruction]) -> Block:
    """Rewrite the loads of a block; ``chosen``: the selections of adjacent indices in enclosing loops."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        selected = chosen.get(i.operands[-1]) if isinstance(i.op, Load) else None
        if selected is not None and _is_row_major(i.operands[0]):
            _blend(Builder(i.loc, instructions), i, selected)
            continue
        if isinstance(i.op, For):
            body = i.regions[0]
            instructions.append(replace(i, regions=(_rewrite(body, {**chosen, **_selections(body)}),)))
        else:
            instructions.append(replace(i, regions=tuple(_rewrite(r, chosen) for r in i.regions)) if i.regions else i)
    return replace(block, instructions=tuple(instructions))


def _is_row_major(ref: Value) -> bool:
    return isinstance(ref.type, RefType) and ref.type.layout == "c"


def _selections(body: Block) -> dict[Value, Instruction]:
    """Return the selections between two indices, each the index of the loop plus a loop-invariant offset, by a condition that
    varies in the loop."""
    selections = [k for k in body.instructions if k.op.name == "select" and k.result.type.dtype is I64]
    if not selections:
        return {}
    index, defined = body.parameters[0], {v: k for k in body.instructions for v in k.results}
    varying = {index}
    for k in body.instructions:
        if not varying.isdisjoint(k.operands):
            varying.update(k.results)
    return {
        k.result: k
        for k in selections
        if k.operands[0] in varying and all(is_shifted(v, index, defined, varying) for v in k.operands[1:])
    }


def _blend(b: Builder, load: Instruction, selected: Instruction) -> None:
    """Emit a load at a selected index as the selection of two masked loads."""
    assert isinstance(load.op, Load)
    condition, *indices = selected.operands
    ref, *guard_and_index = load.operands
    guard = guard_and_index.pop(0) if load.op.masked else None
    other = b.bitxor(condition, b.const(True, BOOL))
    guards = [condition, other] if guard is None else [b.bitand(guard, condition), b.bitand(guard, other)]
    named = b.at(load.loc, load.result.name)
    parts = [named.load_if(ref, g, *guard_and_index[:-1], v) for g, v in zip(guards, indices, strict=True)]
    b.append(Instruction(selected.op, (condition, *parts), load.results, {}, (), load.loc))
