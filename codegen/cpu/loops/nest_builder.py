"""Builders for the loop nests of matrix products: loops, conditions, integer quotients, operand regions inlined at an index,
and the rows that a region accesses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.analysis.accesses import ref_and_index
from pullback.codegen.analysis.independence import is_shifted
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, copy_block, key_of
from pullback.ir.core.types import I64, RefType, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.kernel import Load, Store

Body = Callable[[Builder, Value], None]
FEW = 5
"""Fewest chunks of a loop over threads. A loop with fewer may be run by the calling thread alone, because waking a worker
costs more (``run``); the chunks beyond the real count are empty."""
MOST_CHUNKS = 16
"""Largest number of chunks per thread into which a batch is cut."""


START = {"add": 0.0, "mul": 1.0, "maximum": float("-inf"), "minimum": float("inf")}
"""The identity of each combiner, from which an accumulation starts."""


def identities(b: Builder, combine: Sequence[str], values: Sequence[Value]) -> list[Value]:
    """Return the identity of each combiner in the dtype of its value."""
    return [b.const(START[name], v.type.dtype) for name, v in zip(combine, values, strict=True)]


def constant(b: Builder, value: int) -> Value:
    """Return an i64 constant."""
    return b.const(value, I64)


def loop(b: Builder, count: Value, body: Body, **params: object) -> None:
    """Emit a loop over ``count`` iterations; ``params`` are the parameters of ``for``."""
    inner, index = Builder(b.loc), Value(scalar(I64))
    body(inner, index)
    b.emit(OPS["for"], (count,), params, [inner.block([index], [])])


def serial(b: Builder, count: Value, body: Body) -> None:
    """Emit a loop whose iterations run in order on one thread."""
    loop(b, count, body, map="serial", ordered=True)


def vector(b: Builder, count: Value, multiple: int, body: Body, **params: object) -> None:
    """Emit a vector loop. ``multiple``: a known divisor of the trip count."""
    loop(b, count, body, map="vector", **({"multiple": multiple} if multiple > 1 else {}), **params)


def when(b: Builder, condition: Value, body: Callable[[Builder], None]) -> None:
    """Emit an ``if`` without an else branch."""
    inner = Builder(b.loc)
    body(inner)
    b.emit(OPS["if"], (condition,), {}, [inner.block([], [])])


def ceil_div(b: Builder, count: Value, divisor: int) -> Value:
    """Return ``ceil(count / divisor)`` for a divisor known at compile time."""
    return floor_div(b, b.add(count, constant(b, divisor - 1)), divisor)


def each_of_batch(
    b: Builder, batch: tuple[Value, Value], blocks: Value, is_long: Value, begin: Callable[[Builder], Body]
) -> None:
    """Emit the loops over the blocks of all products of a batch, ``batch`` being the count and the value that holds the
    product's index. Chunks of blocks are divided among threads. ``begin`` emits what precedes the blocks of a chunk and
    returns the emitter of one block."""
    total, product = b.mul(batch[0], blocks), batch[1]
    most = b.mul(b.emit(OPS["threads"], (), {})[0], constant(b, MOST_CHUNKS))
    size = b.maximum(b.select(is_long, ceil_div_by(b, total, most), total), constant(b, 1))
    chunk_count = ceil_div_by(b, total, size)
    chunks = b.select(b.gt(chunk_count, constant(b, 1)), b.maximum(chunk_count, constant(b, FEW)), chunk_count)

    def chunk(b: Builder, c: Value) -> None:
        first, block = b.mul(c, size), begin(b)

        def body(b: Builder, k: Value) -> None:
            at = b.add(first, k)
            b.append(Instruction(OPS["idiv"], (at, blocks), (product,), {}, (), b.loc))
            block(b, b.sub(at, b.mul(product, blocks)))

        serial(b, b.minimum(size, b.sub(total, first)), body)

    loop(b, chunks, chunk, map="core")


def floor_div(b: Builder, count: Value, divisor: int) -> Value:
    """Return ``floor(count / divisor)``; a shift if the divisor is a power of two."""
    is_power = divisor & (divisor - 1) == 0
    quotient: Value = b.raw_shr(count, constant(b, divisor.bit_length() - 1)) if is_power else b.idiv(count, constant(b, divisor))
    return quotient


def constant_value(b: Builder, value: Value) -> int | None:
    """Return a value as an int if it is a constant of the kernel, else None."""
    definition = b.maker(value)
    return int(definition.params["value"]) if definition is not None and isinstance(definition.op, Constant) else None


def ceil_div_by(b: Builder, count: Value, divisor: Value) -> Value:
    """Return ``ceil(count / divisor)`` for a positive divisor known at run time."""
    return b.idiv(b.add(count, b.sub(divisor, constant(b, 1))), divisor)


def element(b: Builder, region: Block, *at: Value) -> Value:
    """Inline a region at an index; return its first result."""
    return elements(b, region, *at)[0]


def elements(b: Builder, region: Block, *at: Value) -> Sequence[Value]:
    """Inline a region at an index; return its results."""
    inlined = copy_block(region, at)
    b.instructions.extend(inlined.instructions)
    return inlined.results


Stores = list[tuple[Value, ...]]
"""Operands of masked stores: value, reference, mask, index."""
Emitted = dict[tuple[Any, ...], tuple[Value, ...]]
"""Results of instructions emitted before, keyed by op, operands and parameters."""


def inline_masked(
    b: Builder, region: Block, at: Sequence[Value], varying: int, inside: Value | None, stores: Stores | None = None,
    emitted: Emitted | None = None,
) -> tuple[Value, ...]:  # fmt: skip
    """Inline a region whose index differs from lane to lane in position ``varying``, under a mask; return its results.

    Lanes outside the mask compute with zeros and read no memory. ``inside``: the mask, None if all lanes are inside. Stores
    are appended to ``stores`` and not emitted. ``emitted``: results at other positions, which are reused, since nothing is
    stored in between.
    """
    inlined = copy_block(region, tuple(at))
    env: dict[Value, Value] = {}
    varies = set() if inside is None else {at[varying]}
    for i in inlined.instructions:
        operands = tuple(env.get(v, v) for v in i.operands)
        if isinstance(i.op, Store) and stores is not None and inside is not None:
            value, ref, *index = operands
            stores.append((value, ref, inside, *index))
            continue
        copied_instruction = Instruction(i.op, operands, i.results, i.params, i.regions, i.loc)
        is_uniform = varies.isdisjoint(operands)
        if isinstance(i.op, Load) and inside is not None and not is_uniform:
            ref, load_index = ref_and_index(copied_instruction)
            mask = _once(b, _both(operands[1], inside), emitted)[0] if i.op.masked else inside
            copied_instruction = Instruction(OPS["load_if"], (ref, mask, *load_index), i.results, {}, (), i.loc)
        results = _once(b, copied_instruction, emitted)
        env.update(zip(i.results, results, strict=True))
        if not is_uniform:
            varies.update(results)
    return tuple(env.get(v, v) for v in inlined.results)


def _both(x: Value, y: Value) -> Instruction:
    """Build the conjunction of two masks."""
    return Instruction(OPS["bitand"], (x, y), (Value(x.type),))


def _once(b: Builder, instruction: Instruction, emitted: Emitted | None) -> tuple[Value, ...]:
    """Append an instruction unless an equal pure one is in ``emitted``; return its results."""
    if emitted is not None and instruction.op.effect == "pure":
        key = key_of(instruction.op, instruction.operands, instruction.params)
        if key in emitted:
            return emitted[key]
        emitted[key] = instruction.results
    b.append(instruction)
    return instruction.results


def is_contiguous_along(region: Block, one: int, other: int) -> bool:
    """Return whether more loads of a region are contiguous along parameter ``one`` than along parameter ``other``."""
    return _along(region, region.parameters[one]) > _along(region, region.parameters[other])


def _along(region: Block, index: Value) -> int:
    """Count the loads of a region that are contiguous along ``index``."""
    definitions = {v: i for i in region.instructions for v in i.results}
    varies = {index}
    for i in region.instructions:
        if not varies.isdisjoint(i.operands):
            varies.update(i.results)
    total = 0
    for i in region.instructions:
        index_values = _element_index(i, varies) if isinstance(i.op, Load) else ()
        total += (
            bool(index_values)
            and index_values[-1] in varies
            and is_shifted(index_values[-1], index, definitions, varies)
            and varies.isdisjoint(index_values[:-1])
        )
    return total


def _element_index(i: Instruction, varies: set[Value]) -> Sequence[Value]:
    """Return the index of a load without the axis that holds the two parts of complex numbers."""
    ref, index = ref_and_index(i)
    return index[:-1] if len(index) > 1 and ref.type.shape[-1] == 2 and index[-1] not in varies else index


@dataclass(frozen=True)
class Rows:
    """Memory that a region accesses by contiguous rows: the reference, the index of an element, and the position ``axis`` of
    the row in that index; the column is its last position."""

    ref: Value
    index: tuple[Value, ...]
    axis: int

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        """Return a reference to a row from ``column`` on."""
        index = [row if k == self.axis else v for k, v in enumerate(self.index[:-1])]
        return b.emit(OPS["ref_at"], (self.ref, *index, column), {})[0]

    def of(self, product: Value, value: Value) -> Rows:
        """Return these rows for one product of a batch: ``value`` replaces ``product`` in the index."""
        return replace(self, index=tuple(value if v is product else v for v in self.index))

    def next(self, b: Builder, product: Value) -> Value:
        """Return the stride between the products of a batch, in elements; 0 if the index does not depend on the product."""
        return self.stride(b, self.index.index(product)) if product in self.index else constant(b, 0)

    def stride(self, b: Builder, axis: int | None = None) -> Value:
        """Return the stride between rows in elements, or along another axis."""
        total = constant(b, 1)
        for extent in self.ref.type.shape[(self.axis if axis is None else axis) + 1 :]:
            size = constant(b, extent) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]
            total = b.mul(total, size)
        return total


@dataclass(frozen=True)
class RowsAt:
    """Rows that begin at a reference, with a stride of ``distance`` elements. ``in_rows``: the reference has an axis of
    rows; else it has one axis."""

    ref: Value
    distance: Value
    in_rows: bool = False

    def begin(self, b: Builder, row: Value, column: Value) -> Value:
        return b.emit(OPS["ref_at"], (self.ref, *self.index(b, row, column)), {})[0]

    def stride(self, b: Builder) -> Value:
        return self.distance

    def index(self, b: Builder, row: Value, column: Value) -> tuple[Value, ...]:
        return (row, column) if self.in_rows else (b.add(b.mul(row, self.distance), column),)


def rows_of(region: Block, row: int = 0, column: int = 1) -> Rows | None:
    """Return the rows that the first access of a region walks along two of its parameters; None for any other access."""
    instruction = next((i for i in region.instructions if isinstance(i.op, Load | Store) and not i.op.masked), None)
    if instruction is None:
        return None
    ref, index = ref_and_index(instruction)
    inside = {*region.parameters, *(v for i in region.instructions for v in i.results)}
    varying = [k for k, v in enumerate(index) if v in inside]
    if not isinstance(ref.type, RefType) or ref.type.layout != "c" or len(varying) != 2:
        return None
    if (index[varying[0]], index[-1]) != (region.parameters[row], region.parameters[column]):
        return None
    return Rows(ref, tuple(index), varying[0])


def is_stored(each: Block) -> bool:
    """Return whether the last region of a product does nothing but store its sum."""
    stores = each.instructions
    is_one = len(stores) == 1 and not each.results and isinstance(stores[0].op, Store) and not stores[0].op.masked
    return is_one and stores[0].operands[0] is each.parameters[2]


def is_plain(i: Instruction) -> bool:
    """Return whether an instruction of a region is a load, a store, a constant or an elementwise op that LLVM has as an
    instruction."""
    if not isinstance(i.op, Elementwise):
        return isinstance(i.op, Load | Store | Constant)
    lowering = i.op.template("llvm", i.operands[1 if i.op.gives == "select" else 0].type.dtype.kind)
    return lowering.partition(":")[0] not in ("recipe", "ufunc")


def prefetch(b: Builder, region: Block, *at: Value) -> None:
    """Emit prefetches of the memory that a region reads or writes, where the leading parameters alone determine the address."""
    env = dict(zip(region.parameters, at, strict=False))
    inside = {*region.parameters, *(v for i in region.instructions for v in i.results)}
    moves = set(env)
    for i in region.instructions:
        if isinstance(i.op, Load | Store):
            ref, index = ref_and_index(i)
            if not moves.isdisjoint(index) and all(v in env or v not in inside for v in (ref, *index)):
                b.emit(OPS["prefetch"], [ref, *(env.get(v, v) for v in index)])
        elif _is_index_arithmetic(i) and all(v in env or v not in inside for v in i.operands):
            env[i.result] = b.emit(i.op, [env.get(v, v) for v in i.operands], dict(i.params))[0]
            if not moves.isdisjoint(i.operands):
                moves.add(i.result)


def _is_index_arithmetic(i: Instruction) -> bool:
    """Return whether an instruction computes an i64 from i64 values."""
    return not i.regions and len(i.results) == 1 and all(v.type == scalar(I64) for v in (*i.operands, *i.results))
