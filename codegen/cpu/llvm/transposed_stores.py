"""Vectors that are stored across: each lane's elements of several vectors lie side by side, those of the next lane further on.

Such stores are scatters. A group of four is turned in registers first, so that each lane is one store. So is a group of as many
as there are lanes, a square, if it is loaded: its parts of 16 bytes are loaded to where they go, and turned where they are, since
processors load a part into a vector at more than one port, and move elements across one at a single one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, stored, wide
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Store

TURNED = 4
PART = 16
"""The bytes of a part."""


def turned(
    e: FunctionWriter, some: Sequence[Instruction], made: Mapping[Value, Instruction], number: int = TURNED
) -> Sequence[Instruction]:
    """So many instructions of a block, if they are stores of elements side by side, in each lane further on than they reach; else
    none. ``made``: what makes the values of the block."""
    if e.width < TURNED or e.mask is not None or len(some) < number:
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
    return some if offset.step is not None and offset.step >= number else ()


def square(e: FunctionWriter, some: Sequence[Instruction], made: Mapping[Value, Instruction]) -> Sequence[Instruction]:
    """Such instructions, as many as there are lanes, if what they store is loaded from lines of memory; else none."""
    loads = [made.get(i.operands[0]) if i.operands else None for i in some]
    if e.width <= TURNED or len(some) < e.width or not all(i is not None and i.op is OPS["load"] for i in loads):
        return ()
    group = turned(e, some, made, e.width)
    if not group or group[0].operands[0].type.dtype.bytes * e.width <= PART:
        return ()
    return group if all(_is_line(e, i) for i in loads if i is not None) else ()


def _is_line(e: FunctionWriter, load: Instruction) -> bool:
    """Whether a load is of neighbours."""
    return load in e.bases or (e.env[load.operands[-1]].step == 1 and not e.places[load.operands[0]].strides)


def store_square(e: FunctionWriter, group: Sequence[Instruction], made: Mapping[Value, Instruction]) -> None:
    """A square, a part of some lanes at a time."""
    place, width = e.places[group[0].operands[1]], e.width
    dtype = place.type.dtype
    each = PART // dtype.bytes
    t, name = wide(stored(dtype), each), stored(dtype)
    columns = []
    for i in group:
        load = made[i.operands[0]]
        source = e.places[load.operands[0]]
        column: str | None
        if load in e.bases:
            column = e.beside(source, *e.bases[load])
        else:
            *outer, inner = (e.env[v].text for v in load.operands[1:])
            column = e.in_row(source, [*map(Lanes, outer), Lanes(inner, 1)])
        assert column is not None
        columns.append(column)
    offset = e.offset(place, [e.env[v] for v in group[0].operands[2:]])
    assert offset.step is not None
    for first in range(0, width, each):
        rows = []
        for k in range(each):
            pointers = (e.let(f"getelementptr {name}, ptr {p}, i64 {first}") if first else p for p in columns[k::each])
            parts = [e.let(f"load {t}, ptr {p}, align {dtype.bytes}") for p in pointers]
            rows.append(_joined(e, name, each, parts))
        for lane, row in enumerate(_turned_parts(e, wide(name, width), rows, width)):
            at = e.add(Lanes(offset.text), Lanes(str((first + lane) * offset.step)))
            e.line(f"store {wide(name, width)} {row}, ptr {e.pointers(place, at)}, align {dtype.bytes}")


def _joined(e: FunctionWriter, name: str, each: int, parts: Sequence[str]) -> str:
    """Vectors of so many elements as one."""
    while len(parts) > 1:
        order = ", ".join(f"i32 {n}" for n in range(2 * each))
        t = wide(name, each)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [e.let(f"shufflevector {t} {a}, {t} {b}, <{2 * each} x i32> <{order}>") for a, b in pairs]
        each *= 2
    return parts[0]


def _turned_parts(e: FunctionWriter, t: str, rows: Sequence[str], width: int) -> list[str]:
    """As many vectors as a part has elements, turned part by part."""
    each = len(rows)
    if each == 2:
        a, b = rows
        return [_shuffled(e, t, a, b, [n + side for n in range(k, width, 2) for side in (0, width)]) for k in (0, 1)]
    low, high = _pairs(width, (0, 1)), _pairs(width, (2, 3))
    halves = [_shuffled(e, t, rows[k], rows[k + 1], order) for order in (low, high) for k in (0, 2)]
    return [_shuffled(e, t, halves[2 * (k // 2)], halves[2 * (k // 2) + 1], _halves(width, k % 2)) for k in range(each)]


def _behind(e: FunctionWriter, value: Value, made: Mapping[Value, Instruction]) -> tuple[Value, int]:
    """A value and the number that are added up to another one."""
    i = made.get(value)
    number = e.env[i.operands[1]].literal if i is not None and i.op.name == "add" else None
    return (value, 0) if i is None or number is None else (i.operands[0], number)


def store_turned(e: FunctionWriter, group: Sequence[Instruction]) -> None:
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


def _shuffled(e: FunctionWriter, t: str, a: str, b: str, order: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.let(f"shufflevector {t} {a}, {t} {b}, <{len(order)} x i32> <{mask}>")
