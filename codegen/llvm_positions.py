"""Comparisons of positions in emitted LLVM code: where in a vector a position, the same for all lanes, is met.

Lane by lane positions are 64 bits wide, so that a vector of float32 would take two of them, spread, added to and compared. The
lane that is met is a number, computed once; that number, as narrow as elements are, is compared with those of the lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pullback.codegen.lanes import Lanes, wide
from pullback.ir.op import Op

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter


def met(e: Emitter, op: Op, operands: Sequence[Lanes]) -> Lanes | None:
    """Whether positions are equal ("eq"), or not ("ne"), lane by lane; None if their distance does not grow by one each lane."""
    a, b = operands
    if a.step is None or b.step is None or abs(a.step - b.step) != 1:
        return None
    first, second = (a, b) if a.step > b.step else (b, a)
    lane = e.let(f"sub i64 {second.text}, {first.text}")
    bits = max(8, 8 * e.target.vector_bytes // e.width)
    near = e.let(f"select i1 {e.let(f'icmp ult i64 {lane}, {e.width}')}, i64 {lane}, i64 -1")
    if bits < 64:
        near = e.let(f"trunc i64 {near} to i{bits}")
    t = wide(f"i{bits}", e.width)
    start = e.let(f"insertelement {t} poison, i{bits} {near}, i64 0")
    spread = e.let(f"shufflevector {t} {start}, {t} poison, <{e.width} x i32> zeroinitializer")
    lanes = ", ".join(f"i{bits} {k}" for k in range(e.width))
    return Lanes(e.let(f"icmp {op.name} {t} {spread}, <{lanes}>"), None)
