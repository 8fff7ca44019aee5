"""Choose the functions of arrays that are computed where these are joined, each in the loop of its part.

    a = sin(x); b = y * z; concatenate([a, b])     one kernel evaluates sin(x) and y * z and stores them in the joined array

They would be stored first, then copied. The kernel has one loop a part (``codegen/kernels/groups/joined.py``), so nothing is
computed in vain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.fuse.rematerialize import weight
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex, broadcast, concat, squeeze
from pullback.ir.ops.elementwise.elementwise import Elementwise

MOST_WEIGHT = 400
"""Largest weight, in machine instructions, of the functions that the loops of one kernel compute."""
Readers = Mapping[Value, Sequence[Instruction]]


def joined_parts(function: Function, readers: Readers) -> set[Value]:
    """Return the elementwise values that only a joined array, or others of them, read."""
    results = set(function.results)
    producer = {v: i for i in function.instructions for v in i.results}
    chosen: set[Value] = set()
    for i in function.instructions:
        if i.op is concat and len(i.operands) > 1 and _is_read_at_elements(i, readers):
            parts = [_computed(v, producer, readers, results) for v in i.operands]
            forms = [tuple((k.op.name, k.operands[0].type.dtype) for k in part) for part in parts]
            loops = [part for part, form, before in zip(parts, forms, (None, *forms), strict=False) if form != before]
            if sum(weight(k) for part in loops for k in part) <= MOST_WEIGHT:
                chosen.update(k.result for part in parts for k in part)
    return chosen


def _is_read_at_elements(join: Instruction, readers: Readers) -> bool:
    """Return whether only elementwise functions of a joined array, and reductions of them to scalars, read it, if not its
    memory is read."""
    stack, seen = [join.result], {join.result}
    while stack:
        for i in readers.get(stack.pop(), ()):
            if isinstance(i.op, Elementwise) and i.result not in seen:
                seen.add(i.result)
                stack.append(i.result)
            elif isinstance(i.op, Reindex) or (isinstance(i.op, Reduce) and i.result.type.shape):
                return False
    return True


def _computed(value: Value, producer: Mapping[Value, Instruction], readers: Readers, results: set[Value]) -> list[Instruction]:
    """Return the elementwise instructions that compute a part and that nothing else reads."""
    computed: list[Instruction] = []
    stack = [value]
    while stack:
        v = stack.pop()
        i = producer.get(v)
        if i is None or v in results or len(readers.get(v, ())) != 1:
            continue
        if isinstance(i.op, Elementwise) and v.type.shape:
            computed.append(i)
            stack += dict.fromkeys(i.operands)
        elif i.op is broadcast or i.op is squeeze:
            stack += i.operands
    return computed
