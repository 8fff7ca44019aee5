"""Choose the lanes of a vector loop and its unrolling, by the weight of its body."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64, ArrayType, DType, RefType, Type
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.float_parts import ColdCall
from pullback.ir.ops.kernel.kernel import Load, Prefetch, Store

MOST_LANES = 16
"""Greatest number of lanes."""
UNROLL = ((10, 4), (28, 2))
"""Greatest weight of a body that reduces or scans, and the number of vectors per iteration; heavier bodies are not unrolled."""
UNROLL_STORES = ((10, 2),)
"""The same for other bodies: no addition depends on another, and a processor stores one vector per cycle."""
MOST_SUMS = 24
"""Greatest number of accumulator vectors of an unrolled iteration, so that they stay in registers."""
SHORT = 64
"""Greatest trip count of a loop that is emitted once, masked, with one tier of sums."""
CALL = 6
"""Weight of a branch around a rare call."""


def lanes_of(vector_bytes: int, region: Block) -> int:
    """Return the lanes of a loop with vectors of ``vector_bytes``, set by its widest element; positions do not count."""
    widest = 1
    for i in walk(region):
        for value in i.operands[:1] if isinstance(i.op, Store) else i.results:
            t = value.type
            if isinstance(t, ArrayType) and t.dtype.bits > 8 * widest and t.dtype is not I64:
                widest = t.dtype.bytes
    return max(2, min(vector_bytes // (8 if widest == 1 else widest), MOST_LANES))


def weigh(region: Block, combine: Sequence[str] = ()) -> int:
    """Return the approximate number of instructions per vector of a loop's body; a large number if it is not elementwise."""
    weight = 12 * sum(name.startswith("arg") for name in combine)
    for i in region.instructions:
        if isinstance(i.op, ColdCall):
            weight += CALL
        elif isinstance(i.op, Prefetch):
            weight += 1
        elif i.regions or not isinstance(i.op, Elementwise | Load | Store):
            weight += 0 if not i.operands and not i.regions else 1000
        else:
            weight += _weight(i.results[0].type.dtype if i.results else i.operands[0].type.dtype, i)
    return weight


def is_short(region: Block) -> bool:
    """Return whether a loop only loads from small kernel-local buffers, such as the results of chunks."""
    body = region.instructions
    return bool(body) and all(isinstance(i.op, Load) and _is_small(i.operands[0].type) for i in body)


def _is_small(t: Type) -> bool:
    """Return whether a type is a kernel-local vector of at most ``SHORT`` elements."""
    if not isinstance(t, RefType) or t.space != "stack" or t.rank != 1:
        return False
    (extent,) = t.shape
    return isinstance(extent, int) and extent <= SHORT


def choose_unroll(weight: int, width: int, count: int | None, results: int) -> int:
    """Return the vectors per iteration that the body's weight, the registers for its results and a known trip count allow."""
    most = next((unroll for limit, unroll in (UNROLL if results else UNROLL_STORES) if weight <= limit), 1)
    while most > 1 and (results * most > MOST_SUMS or (count is not None and count < most * width)):
        most //= 2
    return most


def _weight(dtype: DType, i: Instruction) -> int:
    """Return the approximate instructions per vector: 0 for positions, 5 for 16-bit floats, which are converted."""
    if dtype is I64 and isinstance(i.op, Elementwise):
        return 0
    return 5 if dtype.is_float and dtype.bits == 16 else 1
