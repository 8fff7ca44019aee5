"""Copies of strided operands of plain products, which lie neither by rows nor by columns: a function that kernels share."""

from __future__ import annotations

import functools

from pullback.codegen.product_parts import FEW, MOST_CHUNKS, loop, number, shared, whole
from pullback.codegen.transposes import copied_nest, transposes
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.shared import FAR
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import I64, DType, RefType, scalar

WORTH = 1 << 17
"""To copy so many elements is worth another thread."""
ROWS = 64
"""Threads copy a multiple of so many rows."""


def spell_copy(b: Builder, i: Instruction, functions: dict[str, Instruction]) -> bool:
    """Spell out a loop that copies a strided matrix; False if it does something else."""
    found = copied_nest(i)
    if found is None or found[0].operands[1] is not i.regions[0].parameters[0]:
        return False
    load, store, columns = found
    source, target, (count,) = load.operands[0], store.operands[1], i.operands
    name = f"copy_{source.type.dtype.name}"
    functions[name] = Instruction(OPS["shared"], (), (), {"function": name}, (_function(source.type.dtype),))
    zero, one = number(b, 0), number(b, 1)
    most = b.mul(b.emit(OPS["threads"], (), {})[0], number(b, MOST_CHUNKS))
    is_long = b.ge(b.mul(count, columns), number(b, WORTH))
    size = b.maximum(b.select(is_long, shared(b, count, most), count), one)
    size = b.mul(b.add(whole(b, b.sub(size, one), ROWS), one), number(b, ROWS))
    chunks = shared(b, count, size)
    chunks = b.select(b.gt(chunks, one), b.maximum(chunks, number(b, FEW)), chunks)

    def chunk(b: Builder, c: Value) -> None:
        first = b.mul(c, size)
        to = b.emit(OPS["row_ref"], (target, zero, zero), {})[0]
        given = source, to, columns, first, b.minimum(size, b.sub(count, first))
        b.emit(OPS["call"], given, {"function": name})

    loop(b, chunks, chunk, map="core")
    return True


@functools.cache
def _function(dtype: DType) -> Block:
    """The function of some rows."""
    source, to = Value(RefType(dtype, (FAR, FAR), "strided"), "from"), Value(RefType(dtype, (FAR,)), "to")
    columns, first, count = (Value(scalar(I64), name) for name in ("columns", "first", "count"))
    b, outer, inner = Builder(), Builder(), Builder()
    target = b.emit(OPS["row_ref"], (to, number(b, 0), columns), {})[0]
    row, column = Value(scalar(I64), "i"), Value(scalar(I64), "j")
    at = outer.add(first, row)
    inner.store(inner.load(source, at, column), target, at, column)
    outer.emit(OPS["for"], (columns,), {}, [inner.block([column], [])])
    b.emit(OPS["for"], (count,), {}, [outer.block([row], [])])
    return transposes(b.block([source, to, columns, first, count], []))
