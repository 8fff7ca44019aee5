"""Vectors that are stored across: each lane's elements of several vectors lie side by side, those of the next lane further on.

Such stores are scatters. A group of four is turned in registers first, so that each lane is one store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pullback.codegen.lanes import Lanes, stored, wide
from pullback.ir.ops.kernel import Store
from pullback.ir.structure import Instruction, Value

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter

TURNED = 4


def turned(e: Emitter, some: Sequence[Instruction], made: Mapping[Value, Instruction]) -> Sequence[Instruction]:
    """Instructions of a block, if they are stores of elements side by side, in each lane further on than they reach; else none.
    ``made``: what makes the values of the block."""
    if e.width < TURNED or e.mask is not None or len(some) < TURNED:
        return ()
    first = some[0]
    if not isinstance(first.op, Store) or first.op.masked or any(i.op is not first.op for i in some):
        return ()
    ref, *index = first.operands[1:]
    if not index or any([*i.operands[1:-1]] != [ref, *index[:-1]] for i in some[1:]):
        return ()
    places = [_behind(e, i.operands[-1], made) for i in some]
    if any(base is not places[0][0] or by - places[0][1] != k for k, (base, by) in enumerate(places)):
        return ()
    place = e.places[ref]
    if place.strides or place.type.dtype.is_bool or place.type.dtype.bytes < 4:
        return ()
    offset = e.offset(place, [e.env[v] for v in index])
    return some if offset.step is not None and offset.step >= TURNED else ()


def _behind(e: Emitter, value: Value, made: Mapping[Value, Instruction]) -> tuple[Value, int]:
    """A value and the number that are added up to another one."""
    i = made.get(value)
    number = e.env[i.operands[1]].literal if i is not None and i.op.name == "add" else None
    return (value, 0) if i is None or number is None else (i.operands[0], number)


def store_turned(e: Emitter, group: Sequence[Instruction]) -> None:
    """Such stores, a lane at a time."""
    place, width = e.places[group[0].operands[1]], e.width
    dtype = place.type.dtype
    name = stored(dtype)
    t = wide(name, width)
    x = [e.vector(e.env[i.operands[0]], dtype) for i in group]
    low, high = _pairs(width, (0, 1)), _pairs(width, (2, 3))
    halves = [_shuffled(e, t, x[k], x[k + 1], order) for k in (0, 2) for order in (low, high)]
    offset = e.offset(place, [e.env[v] for v in group[0].operands[2:]])
    assert offset.step is not None
    for lane in range(TURNED):
        a, b = halves[lane // 2], halves[2 + lane // 2]
        turned = _shuffled(e, t, a, b, _halves(width, lane % 2))
        for k in range(0, width, TURNED):
            mask = ", ".join(f"i32 {k + n}" for n in range(TURNED))
            part = e.let(f"shufflevector {t} {turned}, {t} poison, <{TURNED} x i32> <{mask}>")
            at = e.add(Lanes(offset.text), Lanes(str((k + lane) * offset.step)))
            e.line(f"store {wide(name, TURNED)} {part}, ptr {e.pointers(place, at)}, align {dtype.bytes}")


def _pairs(width: int, lanes: tuple[int, int]) -> list[int]:
    """Of each four lanes two, each beside that of the other vector."""
    return [n + side for k in range(0, width, TURNED) for n in (k + lanes[0], k + lanes[1]) for side in (0, width)]


def _halves(width: int, half: int) -> list[int]:
    """Of each four lanes the first or last two, before those of the other vector."""
    return [k + 2 * half + n + side for k in range(0, width, TURNED) for side in (0, width) for n in (0, 1)]


def _shuffled(e: Emitter, t: str, a: str, b: str, order: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.let(f"shufflevector {t} {a}, {t} {b}, <{len(order)} x i32> <{mask}>")
