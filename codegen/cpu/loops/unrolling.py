"""How many lanes a vector loop has, what its body weighs, and how many vectors an iteration takes."""

from __future__ import annotations

from collections.abc import Sequence

from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import I64, ArrayType, DType, RefType, Type
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.float_parts import ColdCall
from pullback.ir.ops.kernel.kernel import Load, Prefetch, Store

MOST_LANES = 16
UNROLL = ((10, 4), (28, 2))
"""The most weight of a body that combines or scans, and how many vectors of it an iteration takes; one where it is heavier."""
UNROLL_STORES = ((10, 2),)
"""The same for other bodies. No addition waits for another, and a processor stores one vector a cycle."""
MOST_SUMS = 24
"""So many vectors of results an iteration has, if it takes several: registers hold them."""
SHORT = 64
"""So many elements a loop may have that is written once, masked, and sums in one tier."""
CALL = 6
"""The weight of a branch around a call that is hardly ever made."""


def lanes_of(vector_bytes: int, region: Block) -> int:
    """Return how many lanes a loop has with vectors of so many bytes: as many as its widest element allows; positions do not
    count."""
    widest = 1
    for i in walk(region):
        for value in i.operands[:1] if isinstance(i.op, Store) else i.results:
            t = value.type
            if isinstance(t, ArrayType) and t.dtype.bits > 8 * widest and t.dtype is not I64:
                widest = t.dtype.bytes
    return max(2, min(vector_bytes // (8 if widest == 1 else widest), MOST_LANES))


def weigh(region: Block, combine: Sequence[str] = ()) -> int:
    """Roughly the instructions of one vector of a loop's body; many if it is more than elementwise."""
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
    """Whether a loop does nothing but read memory of the kernel's own that holds few elements, as the results of chunks are."""
    body = region.instructions
    return bool(body) and all(isinstance(i.op, Load) and _is_small(i.operands[0].type) for i in body)


def _is_small(t: Type) -> bool:
    if not isinstance(t, RefType) or t.space != "stack" or t.rank != 1:
        return False
    (extent,) = t.shape
    return isinstance(extent, int) and extent <= SHORT


def choose_unroll(weight: int, width: int, count: int | None, results: int) -> int:
    """How many vectors an iteration takes: as many as the weight of the body, the registers for its results, and the count where
    that is known, allow."""
    most = next((unroll for limit, unroll in (UNROLL if results else UNROLL_STORES) if weight <= limit), 1)
    while most > 1 and (results * most > MOST_SUMS or (count is not None and count < most * width)):
        most //= 2
    return most


def _weight(dtype: DType, i: Instruction) -> int:
    """Roughly the instructions of one vector: none for positions, several where halves are widened and narrowed."""
    if dtype is I64 and isinstance(i.op, Elementwise):
        return 0
    return 5 if dtype.is_float and dtype.bits == 16 else 1
