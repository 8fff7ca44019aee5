"""What the loops of matrix products are made of: loops, conditions, quotients, and the regions of an operand at a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.analysis.independence import is_shifted
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Instruction, copied, key_of
from pullback.ir.core.types import I64, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Load, Store

Body = Callable[[Builder, Value], None]
FEW = 5
"""Loops of fewer chunks may find that it is not worth waking a thread (``run``): some more are empty."""
MOST_CHUNKS = 16
"""So many chunks of a batch for each thread."""


START = {"add": 0.0, "mul": 1.0, "maximum": float("-inf"), "minimum": float("inf")}
"""What a combiner begins with."""


def identities(b: Builder, combine: Sequence[str], values: Sequence[Value]) -> list[Value]:
    """What values are combined with first."""
    return [b.const(START[name], v.type.dtype) for name, v in zip(combine, values, strict=True)]


def number(b: Builder, value: int) -> Value:
    return b.const(value, I64)


def loop(b: Builder, count: Value, body: Body, **params: object) -> None:
    inner, index = Builder(b.loc), Value(scalar(I64))
    body(inner, index)
    b.emit(OPS["for"], (count,), params, [inner.block([index], [])])


def serial(b: Builder, count: Value, body: Body) -> None:
    loop(b, count, body, map="serial", ordered=True)


def vector(b: Builder, count: Value, multiple: int, body: Body, **params: object) -> None:
    """A loop of vectors; the count is known to be such a multiple."""
    loop(b, count, body, map="vector", **({"multiple": multiple} if multiple > 1 else {}), **params)


def when(b: Builder, condition: Value, body: Callable[[Builder], None]) -> None:
    inner = Builder(b.loc)
    body(inner)
    b.emit(OPS["if"], (condition,), {}, [inner.block([], [])])


def parts(b: Builder, count: Value, size: int) -> Value:
    """How many parts of a size hold a count."""
    return whole(b, b.add(count, number(b, size - 1)), size)


def each_of_batch(
    b: Builder, batch: tuple[Value, Value], blocks: Value, is_long: Value, begin: Callable[[Builder], Body]
) -> None:
    """The blocks of all products of a batch, in chunks that threads share; in a block it is known of which product. ``begin``
    spells out what comes before the blocks of a chunk, and gives what spells out one."""
    of_all, which = b.mul(batch[0], blocks), batch[1]
    most = b.mul(b.emit(OPS["threads"], (), {})[0], number(b, MOST_CHUNKS))
    size = b.maximum(b.select(is_long, shared(b, of_all, most), of_all), number(b, 1))
    number_of = shared(b, of_all, size)
    chunks = b.select(b.gt(number_of, number(b, 1)), b.maximum(number_of, number(b, FEW)), number_of)

    def chunk(b: Builder, c: Value) -> None:
        first, block = b.mul(c, size), begin(b)

        def one(b: Builder, k: Value) -> None:
            at = b.add(first, k)
            b.append(Instruction(OPS["idiv"], (at, blocks), (which,), {}, (), b.loc))
            block(b, b.sub(at, b.mul(which, blocks)))

        serial(b, b.minimum(size, b.sub(of_all, first)), one)

    loop(b, chunks, chunk, map="core")


def whole(b: Builder, count: Value, size: int) -> Value:
    """How many parts of a size a count holds."""
    is_power = size & (size - 1) == 0
    found: Value = b.raw_shr(count, number(b, size.bit_length() - 1)) if is_power else b.idiv(count, number(b, size))
    return found


def known(b: Builder, value: Value) -> int | None:
    """An extent that is a number of the template."""
    made = b.maker(value)
    return int(made.params["value"]) if made is not None and isinstance(made.op, Constant) else None


def shared(b: Builder, count: Value, among: Value) -> Value:
    """A count shared out among so many, at least one, rounded up."""
    return b.idiv(b.add(count, b.sub(among, number(b, 1))), among)


def element(b: Builder, region: Block, *at: Value) -> Value:
    """An element of an operand."""
    return elements(b, region, *at)[0]


def elements(b: Builder, region: Block, *at: Value) -> Sequence[Value]:
    """All that a region yields."""
    found = copied(region, at)
    b.instructions.extend(found.instructions)
    return found.results


Stores = list[tuple[Value, ...]]
"""The operands of stores under a mask."""
Met = dict[tuple[Any, ...], tuple[Value, ...]]
"""What was computed before, by what it is computed from."""


def under(
    b: Builder, region: Block, at: Sequence[Value], of: int, inside: Value | None, stores: Stores | None = None,
    met: Met | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """What a region gives if the one of its positions that differs from lane to lane is there; else what is computed from zeros,
    where nothing is read. Its stores wait. ``inside``: whether it is there; None if all are. ``met``: what was computed at other
    positions and is not computed again, since nothing is stored meanwhile."""
    found = copied(region, tuple(at))
    env: dict[Value, Value] = {}
    varies = set() if inside is None else {at[of]}
    for i in found.instructions:
        operands = tuple(env.get(v, v) for v in i.operands)
        if isinstance(i.op, Store) and stores is not None and inside is not None:
            value, ref, *index = operands
            stores.append((value, ref, inside, *index))
            continue
        made = Instruction(i.op, operands, i.results, i.params, i.regions, i.loc)
        is_there = varies.isdisjoint(operands)
        if isinstance(i.op, Load) and inside is not None and not is_there:
            ref, places = ref_and_index(made)
            holds = _once(b, _both(operands[1], inside), met)[0] if i.op.masked else inside
            made = Instruction(OPS["load_if"], (ref, holds, *places), i.results, {}, (), i.loc)
        results = _once(b, made, met)
        env.update(zip(i.results, results, strict=True))
        if not is_there:
            varies.update(results)
    return tuple(env.get(v, v) for v in found.results)


def _both(x: Value, y: Value) -> Instruction:
    return Instruction(OPS["bitand"], (x, y), (Value(x.type),))


def _once(b: Builder, made: Instruction, met: Met | None) -> tuple[Value, ...]:
    """What an instruction gives, which is not written again if it was met."""
    if met is not None and made.op.effect == "pure":
        key = key_of(made.op, made.operands, made.params)
        if key in met:
            return met[key]
        met[key] = made.results
    b.append(made)
    return made.results


def walks(region: Block, one: int, other: int) -> bool:
    """Whether more of what a region reads lies side by side along one of its parameters than along another one."""
    return _along(region, region.parameters[one]) > _along(region, region.parameters[other])


def _along(region: Block, index: Value) -> int:
    """How many of a region's loads read neighbours along an index."""
    made = {v: i for i in region.instructions for v in i.results}
    varies = {index}
    for i in region.instructions:
        if not varies.isdisjoint(i.operands):
            varies.update(i.results)
    found = 0
    for i in region.instructions:
        at = _neighbours(i, varies) if isinstance(i.op, Load) else ()
        found += bool(at) and at[-1] in varies and is_shifted(at[-1], index, made, varies) and varies.isdisjoint(at[:-1])
    return found


def _neighbours(i: Instruction, varies: set[Value]) -> Sequence[Value]:
    """The index of a load, up to the axis along which neighbours are read: of pairs, one of each."""
    ref, index = ref_and_index(i)
    return index[:-1] if len(index) > 1 and ref.type.shape[-1] == 2 and index[-1] not in varies else index


@dataclass(frozen=True)
class Rows:
    """Memory that a region reads or writes by rows of neighbours: the reference, the index of an element, and which position of
    the index tells the row; the last one tells the column."""

    ref: Value
    index: tuple[Value, ...]
    axis: int

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        """The memory from a row's element in a column on."""
        index = [row if k == self.axis else v for k, v in enumerate(self.index[:-1])]
        return b.emit(OPS["ref_at"], (self.ref, *index, column), {})[0]

    def of(self, which: Value, value: Value) -> Rows:
        """Those of one of a batch."""
        return replace(self, index=tuple(value if v is which else v for v in self.index))

    def next(self, b: Builder, which: Value) -> Value:
        """How many elements are from one of a batch to the next."""
        return self.apart(b, self.index.index(which)) if which in self.index else number(b, 0)

    def apart(self, b: Builder, axis: int | None = None) -> Value:
        """How many elements are from one row to the next, or along another axis."""
        total = number(b, 1)
        for extent in self.ref.type.shape[(self.axis if axis is None else axis) + 1 :]:
            size = number(b, extent) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]
            total = b.mul(total, size)
        return total


@dataclass(frozen=True)
class RowsAt:
    """The same of memory that begins at a reference, with rows so many elements apart; it is ``in_rows``, or has one axis."""

    ref: Value
    distance: Value
    in_rows: bool = False

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        return b.emit(OPS["ref_at"], (self.ref, *self.index(b, row, column)), {})[0]

    def apart(self, b: Builder) -> Value:
        return self.distance

    def index(self, b: Builder, row: Value, column: Value) -> tuple[Value, ...]:
        return (row, column) if self.in_rows else (b.add(b.mul(row, self.distance), column),)


def rows_of(region: Block, row: int = 0, column: int = 1) -> Rows | None:
    """Where the first access of a region walks rows of neighbours along two of its parameters; None if it does otherwise."""
    access = next((i for i in region.instructions if isinstance(i.op, Load | Store) and not i.op.masked), None)
    if access is None:
        return None
    ref, index = ref_and_index(access)
    inside = {*region.parameters, *(v for i in region.instructions for v in i.results)}
    at = [k for k, v in enumerate(index) if v in inside]
    if not isinstance(ref.type, RefType) or ref.type.layout != "c" or len(at) != 2:
        return None
    if (index[at[0]], index[-1]) != (region.parameters[row], region.parameters[column]):
        return None
    return Rows(ref, tuple(index), at[0])


def is_stored(each: Block) -> bool:
    """Whether all that the last region of a product does is to store its sum."""
    stores = each.instructions
    is_one = len(stores) == 1 and not each.results and isinstance(stores[0].op, Store) and not stores[0].op.masked
    return is_one and stores[0].operands[0] is each.parameters[2]


def is_plain(i: Instruction) -> bool:
    """Whether an instruction of a region is no function."""
    if not isinstance(i.op, Elementwise):
        return isinstance(i.op, Load | Store | Constant)
    spelling = i.op.spelling("llvm", i.operands[1 if i.op.gives == "select" else 0].type.dtype.kind)
    return spelling.partition(":")[0] not in ("recipe", "ufunc")


def ask(b: Builder, region: Block, *at: Value) -> None:
    """Ask for the memory that a region reads or writes, as far as its first parameters say where that is and no memory does."""
    env = dict(zip(region.parameters, at, strict=False))
    inside = {*region.parameters, *(v for i in region.instructions for v in i.results)}
    moves = set(env)
    for i in region.instructions:
        if isinstance(i.op, Load | Store):
            ref, index = ref_and_index(i)
            if not moves.isdisjoint(index) and all(v in env or v not in inside for v in (ref, *index)):
                b.emit(OPS["prefetch"], [ref, *(env.get(v, v) for v in index)])
        elif _is_position(i) and all(v in env or v not in inside for v in i.operands):
            env[i.result] = b.emit(i.op, [env.get(v, v) for v in i.operands], dict(i.params))[0]
            if not moves.isdisjoint(i.operands):
                moves.add(i.result)


def _is_position(i: Instruction) -> bool:
    return not i.regions and len(i.results) == 1 and all(v.type == scalar(I64) for v in (*i.operands, *i.results))
