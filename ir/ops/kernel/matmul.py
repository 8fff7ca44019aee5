"""Matrix products of kernels, with fused computations: a prologue on the operands and an epilogue on the results.

``product %m, %n, %k (%i, %p) {...} (%p, %j) {...} (%i, %j, %sum) {...}``: the first region yields the element of the left
operand in row i and column p, the second one the element of the right operand, from any memory and by any arithmetic. The
third takes each sum over p of their products, in any order of rows and columns, and writes elements of its own. The first two
write nothing and may run any number of times. Sums are added in an order that depends on m, n and k alone, whatever the number
of threads. Its ``schedule`` selects how a target runs it.

``product %m, %n, %k, %part {combine=[add]} ...``: the values that the third region yields are combined down the columns, each
into a *part*, a reference to a matrix of ceil(m / 64) rows and n columns: the value of row i and column j goes into column j
of some row of the part, by the combiner of its position. The row depends on m, n and k alone. To get totals, initialise a part
before the product and combine its rows after it.

``product %m, %n, %k {row_combine=[add]} ... (%i, %q, %total) {...}``: further values that the third region yields are combined
along the rows, over blocks of ``COLUMNS`` columns; the fourth region takes the combination of row i over the columns from
``COLUMNS`` q on, by the combiner of its position, and writes elements of its own.

``product %m, %n, %k {left_row_sums=true} ... (%i, %total) {...}``: the last region takes the sum of row i of the left operand
over the reduction axis, and writes elements of its own.

For complex elements the first two regions yield real and imaginary parts, and the third takes those of the sum. A complex
product is the four real products of the parts, as in BLAS. Complex values are never combined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.types import F32, F64, I64, RefType, Type, scalar
from pullback.ir.ops.kernel.kernel import KERNEL

ROWS = 64
"""The number of rows of the product that are combined into one row of a part."""
COLUMNS = 96
"""The number of columns of a row that are combined: a multiple of the columns of all tiles."""
COMBINERS = ("add", "mul", "maximum", "minimum")


class Product(Op):
    """A matrix product. Operands: the numbers of rows and columns and the depth K (i64), and the parts. Elements are f32 or
    f64. ``combine``: the combiners of the parts; absent if there are none. ``row_combine``: the combiners along rows,
    likewise. Param ``tf32``: elements of f32 may be rounded to 11 bits before they are multiplied; ``in_place``: the
    positions of operands that a region loads from a strided reference whose rows, or columns, are contiguous, as
    ``row_view`` requires. ``left_row_sums``: the left operand is summed along the reduction axis."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if list(types[:3]) != [scalar(I64)] * 3:
            raise TypeError("takes the numbers of rows, columns and terms, three i64 scalars")
        parts, combine = types[3:], params.get("combine", ())
        if any(not isinstance(part, RefType) or part.rank != 2 for part in parts) or len(parts) != len(combine):
            raise TypeError("takes a reference to a matrix for each combiner")
        row_combiners = params.get("row_combine", ())
        if any(name not in COMBINERS for name in (*combine, *row_combiners)):
            raise TypeError(f"combines by {', '.join(COMBINERS)}")
        has_row_sums = bool(params.get("left_row_sums"))
        if len(regions) != 3 + bool(row_combiners) + has_row_sums:
            raise TypeError("has three regions: left operand, right operand, results; and those of rows and of sums")
        left, right, each = regions[:3]
        for region in (left, right):
            if [v.type for v in region.parameters] != [scalar(I64)] * 2 or len(region.results) not in (1, 2):
                raise TypeError("the region of an operand takes two positions and yields an element, or the parts of one")
        element_types, t = [v.type for v in left.results], left.results[0].type
        if (
            t not in (scalar(F32), scalar(F64))
            or [v.type for v in right.results] != element_types
            or element_types != [t] * len(element_types)
        ):
            raise TypeError("the operands' elements must be both f32 or both f64")
        if [v.type for v in each.parameters] != [scalar(I64), scalar(I64), *element_types]:
            raise TypeError(f"the third region must take two positions and {' and '.join(map(str, element_types))}")
        if (parts or row_combiners) and len(element_types) > 1:
            raise TypeError("complex sums are not combined")
        part_types = [scalar(part.dtype) for part in parts if isinstance(part, RefType)]
        if [v.type for v in each.results[: len(parts)]] != part_types or len(each.results) != len(parts) + len(row_combiners):
            raise TypeError("the third region yields an element for each part and for each combiner of rows")
        totals = [v.type for v in each.results[len(parts) :]]
        if row_combiners and [v.type for v in regions[3].parameters] != [scalar(I64), scalar(I64), *totals]:
            raise TypeError("the region of rows takes two positions and what is combined")
        if has_row_sums and ([v.type for v in regions[-1].parameters] != [scalar(I64), t] or len(element_types) > 1):
            raise TypeError("the region of the left operand's sums takes a position and a real sum")
        return ()


product = Product(name="product", effect="effect", vocabularies=KERNEL)
