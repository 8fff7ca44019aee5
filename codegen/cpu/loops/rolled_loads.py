"""rolled_loads: read rolled elements by two masked loads of adjacent elements instead of a gather.

    load x, select(c, j - 1, j + 9)      ->      select(c, load_if(c, x, j - 1), load_if(not c, x, j + 9))

Requires: a kernel whose index sets are split. Keeps: its meaning. What remains of such reads is in the ends of rows, and in
loops that could not be split. Only reads along the last axis of a row-major array are rewritten, whose elements are adjacent.

Of a roll by one position a single element comes in at the other end, and its index is known:

    load x, select(j >= 1, j - 1, j + 9)      ->      select(j >= 1, load_if(j >= 1, x, j - 1), load x, 9)

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
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.kernel.kernel import For, Load

Definitions = Mapping[Value, Instruction]


def rolled_loads(kernel: Block) -> Block:
    """Return the body of a kernel with such loads rewritten."""
    if not any(k.op.name == "select" and k.result.type.dtype is I64 for k in walk(kernel)):
        return kernel
    return _rewrite(kernel, {}, frozenset(), {v: k for k in walk(kernel) for v in k.results})


def _rewrite(block: Block, chosen: Definitions, adjacent: frozenset[Value], defined: Definitions) -> Block:
    """Rewrite the loads of a block; ``chosen``, ``adjacent``: as in ``_selections``, of enclosing loops; ``defined``: the
    definitions of all values of the kernel."""
    instructions: list[Instruction] = []
    for i in block.instructions:
        if isinstance(i.op, Load) and i.operands[-1] in adjacent and _is_row_major(i.operands[0]):
            _blend(Builder(i.loc, instructions), i, chosen, defined)
            continue
        if isinstance(i.op, For):
            selections, more = _selections(i.regions[0])
            body = _rewrite(i.regions[0], {**chosen, **selections}, adjacent | more, defined)
            instructions.append(replace(i, regions=(body,)))
        else:
            regions = tuple(_rewrite(r, chosen, adjacent, defined) for r in i.regions)
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


def _blend(b: Builder, load: Instruction, chosen: Definitions, defined: Definitions) -> None:
    """Emit a load at a selected index as the selection of two masked loads. Other indices may be selected by the same
    condition."""
    assert isinstance(load.op, Load)
    ref, *index = load.operands
    guard = index.pop(0) if load.op.masked else None
    selected = chosen[index[-1]]
    condition = selected.operands[0]
    at = [chosen[v].operands if v in chosen and chosen[v].operands[0] is condition else (condition, v, v) for v in index]
    main, other = ([v[k] for v in at] for k in (1, 2))
    named = b.at(load.loc, load.result.name)
    single = _single_index(b, selected, defined) if guard is None and all(v is w for v, w in zip(main[:-1], other[:-1])) else None
    if single is not None:
        parts = [named.load_if(ref, condition, *main), named.load(ref, *other[:-1], single)]
    else:
        outside = b.bitxor(condition, b.const(True, BOOL))
        guards = [condition, outside] if guard is None else [b.bitand(guard, condition), b.bitand(guard, outside)]
        parts = [named.load_if(ref, g, *v) for g, v in zip(guards, (main, other), strict=True)]
    b.append(Instruction(selected.op, (condition, *parts), load.results, {}, (), load.loc))


def _single_index(b: Builder, selected: Instruction, defined: Definitions) -> Value | None:
    """Return the only index of the elements that come in at the other end of a roll, if it is one by one position:

    select(j >= 1, j - 1, j + last): last; select(j < last, j + 1, j - last): 0
    """
    condition, main, other = (defined.get(v) for v in selected.operands)
    if condition is None or main is None or other is None:
        return None
    parts = [k.operands for k in (condition, main, other)]
    if any(len(operands) != 2 for operands in parts):
        return None
    (position, bound), (source, by), (start, last) = parts
    one = defined.get(by)
    is_one = one is not None and isinstance(one.op, Constant) and one.params["value"] == 1
    if not is_one or source is not position or start is not position:
        return None
    match condition.op.name, main.op.name, other.op.name:
        case "ge", "sub", "add" if bound is by:
            return last
        case "lt", "add", "sub" if bound is last:
            return b.const(0, I64)
    return None
