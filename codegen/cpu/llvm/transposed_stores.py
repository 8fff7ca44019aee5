"""Transpose groups of vector stores whose elements are contiguous across the vectors, not along the lanes.

Such stores would be scatters. A group of four is transposed in registers, so that each lane becomes one contiguous store. A
group of as many stores as lanes, a square, is also transposed if its values are loaded: 16-byte parts are loaded directly to
the register positions where they belong, and transposed within these positions. Processors can load a part into a vector on
more than one port, but move elements across parts on only one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, stored, vector_of
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Instruction
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import Store

GROUP = 4
"""The number of stores in a group."""
PART = 16
"""Bytes of a part."""


def transposed_group(
    e: FunctionWriter, some: Sequence[Instruction], producers: Mapping[Value, Instruction], size: int = GROUP
) -> Sequence[Instruction]:
    """Return the first ``size`` instructions if they form a group, else none.

    They have to be stores to contiguous elements, which advance from lane to lane by at least the size of the group.
    ``producers``: the instructions that produce the values of the block.
    """
    if e.width < GROUP or e.mask is not None or len(some) < size:
        return ()
    first = some[0]
    if not isinstance(first.op, Store) or first.op.masked or any(i.op is not first.op for i in some):
        return ()
    ref, *index = first.operands[1:]
    if not index or any([*i.operands[1:-1]] != [ref, *index[:-1]] for i in some[1:]):
        return ()
    offsets = [_base_and_offset(e, i.operands[-1], producers) for i in some]
    if any(base is not offsets[0][0] or by - offsets[0][1] != k for k, (base, by) in enumerate(offsets)):
        return ()
    memref = e.memrefs[ref]
    if memref.strides or memref.type.dtype.is_bool or memref.type.dtype.bytes < 4:
        return ()
    offset = e.offset(memref, [e.env[v] for v in index])
    return some if offset.step is not None and offset.step >= size else ()


def square_group(e: FunctionWriter, some: Sequence[Instruction], producers: Mapping[Value, Instruction]) -> Sequence[Instruction]:
    """Return a group with as many stores as lanes whose values are loaded from contiguous memory, else none."""
    loads = [producers.get(i.operands[0]) if i.operands else None for i in some]
    if e.width <= GROUP or len(some) < e.width or not all(i is not None and i.op is OPS["load"] for i in loads):
        return ()
    group = transposed_group(e, some, producers, e.width)
    if not group or group[0].operands[0].type.dtype.bytes * e.width <= PART:
        return ()
    return group if all(_is_contiguous(e, i) for i in loads if i is not None) else ()


def _is_contiguous(e: FunctionWriter, load: Instruction) -> bool:
    """Return whether a load is contiguous."""
    return load in e.bases or (e.env[load.operands[-1]].step == 1 and not e.memrefs[load.operands[0]].strides)


def store_square(e: FunctionWriter, group: Sequence[Instruction], producers: Mapping[Value, Instruction]) -> None:
    """Emit the stores of a square, as many lanes at a time as a part has elements."""
    memref, width = e.memrefs[group[0].operands[1]], e.width
    dtype = memref.type.dtype
    part_size = PART // dtype.bytes
    t, name = vector_of(stored(dtype), part_size), stored(dtype)
    columns = []
    for i in group:
        load = producers[i.operands[0]]
        source = e.memrefs[load.operands[0]]
        column: str | None
        if load in e.bases:
            column = e.contiguous_address(source, *e.bases[load])
        else:
            *outer, inner = (e.env[v].text for v in load.operands[1:])
            column = e.row_address(source, [*map(Lanes, outer), Lanes(inner, 1)])
        assert column is not None
        columns.append(column)
    offset = e.offset(memref, [e.env[v] for v in group[0].operands[2:]])
    assert offset.step is not None
    for first in range(0, width, part_size):
        rows = []
        for k in range(part_size):
            pointers = (e.let(f"getelementptr {name}, ptr {p}, i64 {first}") if first else p for p in columns[k::part_size])
            parts = [e.let(f"load {t}, ptr {p}, align {dtype.bytes}") for p in pointers]
            rows.append(_concatenate(e, name, part_size, parts))
        for lane, row in enumerate(_transpose_parts(e, vector_of(name, width), rows, width)):
            at = e.add(Lanes(offset.text), Lanes(str((first + lane) * offset.step)))
            e.line(f"store {vector_of(name, width)} {row}, ptr {e.pointers(memref, at)}, align {dtype.bytes}")


def _concatenate(e: FunctionWriter, name: str, size: int, parts: Sequence[str]) -> str:
    """Concatenate vectors of ``size`` elements."""
    while len(parts) > 1:
        order = ", ".join(f"i32 {n}" for n in range(2 * size))
        t = vector_of(name, size)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [e.let(f"shufflevector {t} {a}, {t} {b}, <{2 * size} x i32> <{order}>") for a, b in pairs]
        size *= 2
    return parts[0]


def _transpose_parts(e: FunctionWriter, t: str, rows: Sequence[str], width: int) -> list[str]:
    """Transpose vectors part by part; there are as many as a part has elements."""
    part_size = len(rows)
    if part_size == 2:
        a, b = rows
        return [_shuffled(e, t, a, b, [n + side for n in range(k, width, 2) for side in (0, width)]) for k in (0, 1)]
    low, high = _interleave_lanes(width, (0, 1)), _interleave_lanes(width, (2, 3))
    halves = [_shuffled(e, t, rows[k], rows[k + 1], order) for order in (low, high) for k in (0, 2)]
    return [_shuffled(e, t, halves[2 * (k // 2)], halves[2 * (k // 2) + 1], _join_halves(width, k % 2)) for k in range(part_size)]


def _base_and_offset(e: FunctionWriter, value: Value, producers: Mapping[Value, Instruction]) -> tuple[Value | None, int]:
    """Split a value into a base, none if it is a constant, and a constant offset."""
    if value in e.env and (constant := e.env[value].literal) is not None:
        return None, constant
    i = producers.get(value)
    offset = e.env[i.operands[1]].literal if i is not None and i.op.name == "add" else None
    if i is None or offset is None:
        return value, 0
    base = e.env[i.operands[0]].literal
    return (i.operands[0], offset) if base is None else (None, base + offset)


def store_transposed(e: FunctionWriter, group: Sequence[Instruction]) -> None:
    """Emit the stores of a group, one per lane."""
    memref, width = e.memrefs[group[0].operands[1]], e.width
    dtype = memref.type.dtype
    name = stored(dtype)
    t = vector_of(name, width)
    x = [e.vector(e.env[i.operands[0]], dtype) for i in group]
    low, high = _interleave_lanes(width, (0, 1)), _interleave_lanes(width, (2, 3))
    halves = [_shuffled(e, t, x[k], x[k + 1], order) for k in (0, 2) for order in (low, high)]
    offset = e.offset(memref, [e.env[v] for v in group[0].operands[2:]])
    assert offset.step is not None
    for lane in range(GROUP):
        a, b = halves[lane // 2], halves[2 + lane // 2]
        transposed = _shuffled(e, t, a, b, _join_halves(width, lane % 2))
        for k in range(0, width, GROUP):
            mask = ", ".join(f"i32 {k + n}" for n in range(GROUP))
            part = e.let(f"shufflevector {t} {transposed}, {t} poison, <{GROUP} x i32> <{mask}>")
            at = e.add(Lanes(offset.text), Lanes(str((k + lane) * offset.step)))
            e.line(f"store {vector_of(name, GROUP)} {part}, ptr {e.pointers(memref, at)}, align {dtype.bytes}")


def _interleave_lanes(width: int, lanes: tuple[int, int]) -> list[int]:
    """Return the shuffle that interleaves two of each four lanes of two vectors."""
    return [n + side for k in range(0, width, GROUP) for n in (k + lanes[0], k + lanes[1]) for side in (0, width)]


def _join_halves(width: int, half: int) -> list[int]:
    """Return the shuffle that joins the first or last two of each four lanes of two vectors."""
    return [k + 2 * half + n + side for k in range(0, width, GROUP) for side in (0, width) for n in (0, 1)]


def _shuffled(e: FunctionWriter, t: str, a: str, b: str, order: Sequence[int]) -> str:
    mask = ", ".join(f"i32 {k}" for k in order)
    return e.let(f"shufflevector {t} {a}, {t} {b}, <{len(order)} x i32> <{mask}>")
