"""Matrix products of kernels that carry their neighbours: what is computed from operands before, and from results after.

``product %m, %n, %k (%i, %p) {...} (%p, %j) {...} (%i, %j, %sum) {...}``: the first region yields the element of the left
operand in row i and column p, the second that of the right one, each from whatever memory and by whatever arithmetic. The third
takes each sum over p of their products, in any order of rows and columns, and writes places of its own. The first two write
nothing and may run any number of times. Sums are added in an order that depends on m, n and k alone, whatever the number of
threads. How a target runs it, its ``schedule`` says.

``product %m, %n, %k, %part {combine=[add]} ...``: what the third region yields is combined down the columns, each value into a
*part*, a reference to ceil(m / 64) rows of n: that of row i and column j into column j of some row of the part, by the combiner
of its position. Into which, depends on m, n and k alone. Whoever wants totals fills a part before and combines its rows after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.op import Op, Same
from pullback.ir.ops.kernel import KERNEL
from pullback.ir.structure import Block
from pullback.ir.types import F32, F64, I64, RefType, Type, scalar

ROWS = 64
"""A part has a row for so many of the product's."""
COMBINERS = ("add", "mul", "maximum", "minimum")


class Product(Op):
    """Operands: the numbers of rows, columns and terms (i64), and the parts. Elements are f32 or f64. ``combine``: the combiners
    of the parts; absent if there are none. Param ``tf32``: elements of f32 may be rounded to 11 bits before they are
    multiplied; ``lies``: the positions of operands that a region loads from a strided reference which has rows, or columns, as
    ``as_rows`` asks for."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        if list(types[:3]) != [scalar(I64)] * 3:
            raise TypeError("takes the numbers of rows, columns and terms, three i64 scalars")
        parts, combine = types[3:], params.get("combine", ())
        if any(not isinstance(part, RefType) or part.rank != 2 for part in parts) or len(parts) != len(combine):
            raise TypeError("takes a reference to a matrix for each combiner")
        if any(name not in COMBINERS for name in combine):
            raise TypeError(f"combines by {', '.join(COMBINERS)}")
        if len(regions) != 3:
            raise TypeError("has three regions: left operand, right operand, results")
        left, right, each = regions
        for region in (left, right):
            if [v.type for v in region.parameters] != [scalar(I64)] * 2 or len(region.results) != 1:
                raise TypeError("the region of an operand takes two positions and yields an element")
        t = left.results[0].type
        if t not in (scalar(F32), scalar(F64)) or right.results[0].type != t:
            raise TypeError("the operands' elements must be both f32 or both f64")
        if [v.type for v in each.parameters] != [scalar(I64), scalar(I64), t]:
            raise TypeError(f"the last region must take two positions and {t}")
        if [v.type for v in each.results] != [scalar(part.dtype) for part in parts if isinstance(part, RefType)]:
            raise TypeError("the last region yields an element for each part")
        return ()


product = Product(name="product", effect="effect", vocabularies=KERNEL)
