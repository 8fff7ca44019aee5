"""element_updates: in loops, write single elements at fixed positions as those at indices that are data.

    %v: f64[1] = broadcast %s {axes=[0]}                        %i: i64[] = count {shape=[n1]}
    %y: f64[n0] = slice_set %x, %v {start=[n1], step=[1]}   ->  %y: f64[n0] = scatter_set %x, %i, %s {axes=[0], in_range=[0]}

A kernel that writes a part has loops over it, which run in chunks if the part is long.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.array.index import Place, Scatter
from pullback.ir.ops.array.reindex import broadcast
from pullback.ir.passes.editing.replay import New, replaced


def element_updates(function: Function, written: Collection[Value]) -> Function:
    """Return the function of a region with such updates of the parameters that it may overwrite, ``written``.

    Requires: a func. Keeps: values bit by bit.
    """
    producer = {v: i for i in function.instructions for v in i.results}

    def emit(b: Builder, i: Instruction, new: New) -> Sequence[Value]:
        base, value = i.operands
        indices = [b.count(shape=(e,)) if e else b.const(0, I64) for e in i.params["start"]]
        axes = tuple(range(len(indices)))
        update = b.scatter_add if i.op.accumulate else b.scatter_set  # type: ignore[attr-defined]
        return [update(new(base), *indices, new(producer[value].operands[0]), axes=axes, in_range=axes)]

    return replaced(function, lambda i: _is_element(i, producer) and _root(i, producer) in written, emit)


def _is_element(i: Instruction, producer: Mapping[Value, Instruction]) -> bool:
    """Return whether an instruction writes a scalar to a fixed position."""
    if not isinstance(i.op, Place) or not i.result.type.shape:
        return False
    definition = producer.get(i.operands[1])
    is_scalar = definition is not None and definition.op is broadcast and not definition.operands[0].type.shape
    return is_scalar and all(e == 1 for e in i.operands[1].type.shape)


def _root(i: Instruction, producer: Mapping[Value, Instruction]) -> Value:
    """Return the array of which an update makes the last version."""
    base = i.operands[0]
    while base in producer and isinstance(producer[base].op, Place | Scatter):
        base = producer[base].operands[0]
    return base
