"""Emits comparisons of positions, and choices of vectors by one condition for all lanes.

Lane by lane, positions are 64 bits wide, so that a vector of float32 would take two of them, spread, added to and compared.
The lane at which a position is met is a number, computed once. It is compared with the numbers of the lanes, which are as narrow
as elements are.

On processors without mask registers, a vector of conditions that is computed before a loop is kept with 16 bits a lane. A choice
by one condition for all lanes is made of its bits there: of zero in one instruction, else in three.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, wide
from pullback.codegen.cpu.llvm.values import Values
from pullback.codegen.targets import WIDEST, Target
from pullback.ir.core.op import Op
from pullback.ir.core.types import DTYPES, DType


def met(e: Values, op: Op, operands: Sequence[Lanes]) -> Lanes | None:
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


def is_by_bits(target: Target, operands: Sequence[Lanes], dtype: DType) -> bool:
    """Whether a choice between vectors of a dtype is made so."""
    condition = operands[0]
    return target.vector_bytes < WIDEST and condition.is_scalar and condition.text.startswith("%") and not dtype.is_bool


def selected(e: Values, operands: Sequence[Lanes], dtype: DType) -> str:
    """The second operand where the first one holds, else the third one."""
    condition, *choices = operands
    bits = DTYPES[f"u{dtype.bits}"]
    t, word = wide(element(dtype), e.width), wide(element(bits), e.width)
    mask = _mask(e, condition, bits)
    x, y = (e.let(f"bitcast {t} {e.vector(choice, dtype)} to {word}") for choice in choices)
    if choices[1].is_scalar and choices[1].text == literal(0, dtype):
        found = e.let(f"and {word} {x}, {mask}")
    else:
        other = e.let(f"and {word} {e.let(f'xor {word} {x}, {y}')}, {mask}")
        found = e.let(f"xor {word} {other}, {y}")
    return e.let(f"bitcast {word} {found} to {t}")


def _mask(e: Values, condition: Lanes, bits: DType) -> str:
    """All bits of all lanes if a condition holds, else none; made before the present loop if it is known there. (Without a
    register of its own it is read from memory by the instruction that needs it.)"""
    key = condition.text, f"mask {element(bits)}", 0
    if key in e.early:
        return e.early[key]
    if not e.is_from_before(condition):
        return e.spread(Lanes(e.let(f"sext i1 {condition.text} to {element(bits)}")), element(bits), e.width)
    with e.before_loop():
        made = Lanes(e.let(f"sext i1 {condition.text} to {element(bits)}"))
        e.early[key] = e.spread(made, element(bits), e.width)
    return e.early[key]
