"""Matrix products of kernels that carry their neighbours: what is computed from operands before, and from results after.

``product %m, %n, %k (%i, %p) {...} (%p, %j) {...} (%i, %j, %sum) {...}``: the first region yields the element of the left
operand in row i and column p, the second that of the right one, each from whatever memory and by whatever arithmetic. The third
takes each sum over p of their products, in any order of rows and columns, and writes places of its own. The first two write
nothing and may run any number of times. Sums are added in an order that depends on m, n and k alone, whatever the number of
threads. How a target runs it, its ``schedule`` says.

``product %m, %n, %k, %part {combine=[add]} ...``: what the third region yields is combined down the columns, each value into a
*part*, a reference to ceil(m / 64) rows of n: that of row i and column j into column j of some row of the part, by the combiner
of its position. Into which, depends on m, n and k alone. Whoever wants totals fills a part before and combines its rows after.

``product %m, %n, %k {row_combine=[add]} ... (%i, %q, %total) {...}``: what the third region yields after these is combined along
the rows, of ``COLUMNS`` columns each; the fourth region takes what comes of row i and the columns from ``COLUMNS`` q on, by the
combiner of its position, and writes places of its own.

``product %m, %n, %k {left_row_sums=true} ... (%i, %total) {...}``: the last region takes the sum of row i of the left operand
over the reduction axis, and writes places of its own.

Of complex numbers the first two regions yield both parts, and the third takes those of the sum. A product of two has the four
products of their parts, as BLAS has them. Nothing of them is combined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.types import F32, F64, I64, RefType, Type, scalar
from pullback.ir.ops.kernel.kernel import KERNEL

ROWS = 64
"""A part has a row for so many of the product's."""
COLUMNS = 96
"""So many columns of a row are combined: a multiple of the columns of all tiles."""
COMBINERS = ("add", "mul", "maximum", "minimum")


class Product(Op):
    """Operands: the numbers of rows, columns and terms (i64), and the parts. Elements are f32 or f64. ``combine``: the combiners
    of the parts; absent if there are none. ``row_combine``: those of rows, likewise. Param ``tf32``: elements of f32 may be
    rounded to 11 bits before they are multiplied; ``in_place``: the positions of operands that a region loads from a strided
    reference whose rows, or columns, are contiguous, as ``row_view`` requires. ``left_row_sums``: the left operand is summed
    along the reduction axis."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if list(types[:3]) != [scalar(I64)] * 3:
            raise TypeError("takes the numbers of rows, columns and terms, three i64 scalars")
        parts, combine = types[3:], params.get("combine", ())
        if any(not isinstance(part, RefType) or part.rank != 2 for part in parts) or len(parts) != len(combine):
            raise TypeError("takes a reference to a matrix for each combiner")
        across = params.get("row_combine", ())
        if any(name not in COMBINERS for name in (*combine, *across)):
            raise TypeError(f"combines by {', '.join(COMBINERS)}")
        along = bool(params.get("left_row_sums"))
        if len(regions) != 3 + bool(across) + along:
            raise TypeError("has three regions: left operand, right operand, results; and those of rows and of sums")
        left, right, each = regions[:3]
        for region in (left, right):
            if [v.type for v in region.parameters] != [scalar(I64)] * 2 or len(region.results) not in (1, 2):
                raise TypeError("the region of an operand takes two positions and yields an element, or the parts of one")
        given, t = [v.type for v in left.results], left.results[0].type
        if t not in (scalar(F32), scalar(F64)) or [v.type for v in right.results] != given or given != [t] * len(given):
            raise TypeError("the operands' elements must be both f32 or both f64")
        if [v.type for v in each.parameters] != [scalar(I64), scalar(I64), *given]:
            raise TypeError(f"the third region must take two positions and {' and '.join(map(str, given))}")
        if (parts or across) and len(given) > 1:
            raise TypeError("complex sums are not combined")
        wanted = [scalar(part.dtype) for part in parts if isinstance(part, RefType)]
        if [v.type for v in each.results[: len(parts)]] != wanted or len(each.results) != len(parts) + len(across):
            raise TypeError("the third region yields an element for each part and for each combiner of rows")
        totals = [v.type for v in each.results[len(parts) :]]
        if across and [v.type for v in regions[3].parameters] != [scalar(I64), scalar(I64), *totals]:
            raise TypeError("the region of rows takes two positions and what is combined")
        if along and ([v.type for v in regions[-1].parameters] != [scalar(I64), t] or len(given) > 1):
            raise TypeError("the region of the left operand's sums takes a position and a real sum")
        return ()


product = Product(name="product", effect="effect", vocabularies=KERNEL)
