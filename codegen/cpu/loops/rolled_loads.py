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
    return _rewrite(kernel, {}, frozenset())


def _rewrite(block: Block, chosen: Mapping[Value, Instruction], adjacent: frozenset[Value]) -> Block:
    """Rewrite the loads of a block; ``chosen``, ``adjacent``: as in ``_selections``, of enclosing loops."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Load) and i.operands[-1] in adjacent and _is_row_major(i.operands[0]):
            _blend(Builder(i.loc, instructions), i, chosen)
            continue
        if isinstance(i.op, For):
            selections, more = _selections(i.regions[0])
            instructions.append(replace(i, regions=(_rewrite(i.regions[0], {**chosen, **selections}, adjacent | more),)))
        else:
            regions = tuple(_rewrite(r, chosen, adjacent) for r in i.regions)
            instructions.append(replace(i, regions=regions) if regions else i)
    return replace(block, instructions=tuple(instructions))


def _is_row_major(ref: Value) -> bool:
    return isinstance(ref.type, RefType) and ref.type.layout == "c"


def _selections(body: Block) -> tuple[dict[Value, Instruction], frozenset[Value]]:
    """Return the selections between two indices by a condition that varies in the loop, each the index of the loop plus a
    loop-invariant offset, or itself invariant; and the results of those whose indices both vary."""
    selections = [k for k in body.instructions if k.op.name == "select" and k.result.type.dtype is I64]
    if not selections:
        return {}, frozenset()
    index, defined = body.parameters[0], {v: k for k in body.instructions for v in k.results}
    varying = {index}
    for k in body.instructions:
        if not varying.isdisjoint(k.operands):
            varying.update(k.results)

    def is_simple(value: Value) -> bool:
        return value not in varying or is_shifted(value, index, defined, varying)

    chosen = {k.result: k for k in selections if k.operands[0] in varying and all(map(is_simple, k.operands[1:]))}
    return chosen, frozenset(v for v, k in chosen.items() if varying.issuperset(k.operands))


def _blend(b: Builder, load: Instruction, chosen: Mapping[Value, Instruction]) -> None:
    """Emit a load at a selected index as the selection of two masked loads. Other indices may be selected by the same
    condition."""
    assert isinstance(load.op, Load)
    ref, *index = load.operands
    condition = chosen[index[-1]].operands[0]
    guard = index.pop(0) if load.op.masked else None
    other = b.bitxor(condition, b.const(True, BOOL))
    guards = [condition, other] if guard is None else [b.bitand(guard, condition), b.bitand(guard, other)]
    named = b.at(load.loc, load.result.name)
    at = [chosen[v].operands if v in chosen and chosen[v].operands[0] is condition else (condition, v, v) for v in index]
    parts = [named.load_if(ref, g, *(v[k] for v in at)) for k, g in enumerate(guards, 1)]
    b.append(Instruction(chosen[index[-1]].op, (condition, *parts), load.results, {}, (), load.loc))
