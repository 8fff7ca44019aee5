"""Emit comparisons of positions for equality, and selections between vectors by one condition for all lanes.

Positions are 64 bits wide, so comparing them lane by lane would need two vectors for one vector of float32. Instead, the lane
at which two positions are equal is computed as a scalar and compared with the lane indices, which are as narrow as the
elements.

On processors without mask registers, a vector of conditions that is hoisted out of a loop takes 16 bits per lane. A selection
by one condition for all lanes uses bitwise operations instead: one instruction if the alternative is zero, else three.
"""

from __future__ import annotations

from collections.abc import Sequence

from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, vector_of
from pullback.codegen.cpu.llvm.values import Values
from pullback.codegen.targets import WIDEST, Target
from pullback.ir.core.op import Op
from pullback.ir.core.types import DTYPES, DType


def compare_positions(e: Values, op: Op, operands: Sequence[Lanes]) -> Lanes | None:
    """Return whether positions are equal ("eq") or different ("ne") in each lane; None if their difference does not grow by 1
    per lane."""
    a, b = operands
    if a.step is None or b.step is None or abs(a.step - b.step) != 1:
        return None
    first, second = (a, b) if a.step > b.step else (b, a)
    lane = e.let(f"sub i64 {second.text}, {first.text}")
    bits = max(8, 8 * e.target.vector_bytes // e.width)
    narrow_lane = e.let(f"select i1 {e.let(f'icmp ult i64 {lane}, {e.width}')}, i64 {lane}, i64 -1")
    if bits < 64:
        narrow_lane = e.let(f"trunc i64 {narrow_lane} to i{bits}")
    t = vector_of(f"i{bits}", e.width)
    start = e.let(f"insertelement {t} poison, i{bits} {narrow_lane}, i64 0")
    lane_vector = e.let(f"shufflevector {t} {start}, {t} poison, <{e.width} x i32> zeroinitializer")
    lanes = ", ".join(f"i{bits} {k}" for k in range(e.width))
    return Lanes(e.let(f"icmp {op.name} {t} {lane_vector}, <{lanes}>"), None)


def selects_by_bits(target: Target, operands: Sequence[Lanes], dtype: DType) -> bool:
    """Return whether a selection between vectors of a dtype uses bitwise operations."""
    condition = operands[0]
    return target.vector_bytes < WIDEST and condition.is_scalar and condition.text.startswith("%") and not dtype.is_bool


def select_by_bits(e: Values, operands: Sequence[Lanes], dtype: DType) -> str:
    """Return the second operand if the first one holds, else the third one, by bitwise operations."""
    condition, *choices = operands
    bits = DTYPES[f"u{dtype.bits}"]
    t, word = vector_of(element(dtype), e.width), vector_of(element(bits), e.width)
    mask = _mask(e, condition, bits)
    x, y = (e.let(f"bitcast {t} {e.vector(choice, dtype)} to {word}") for choice in choices)
    if choices[1].is_scalar and choices[1].text == literal(0, dtype):
        bits_selected = e.let(f"and {word} {x}, {mask}")
    else:
        other = e.let(f"and {word} {e.let(f'xor {word} {x}, {y}')}, {mask}")
        bits_selected = e.let(f"xor {word} {other}, {y}")
    return e.let(f"bitcast {word} {bits_selected} to {t}")


def _mask(e: Values, condition: Lanes, bits: DType) -> str:
    """Return all ones in all lanes if a condition holds, else zeros.

    The mask is hoisted out of the current loop if the condition is. (Without a register of its own, the instruction that uses
    it reads it from memory.)
    """
    key = condition.text, f"mask {element(bits)}", 0
    if key in e.hoisted:
        return e.hoisted[key]
    if not e.is_loop_invariant(condition):
        return e.broadcast(Lanes(e.let(f"sext i1 {condition.text} to {element(bits)}")), element(bits), e.width)
    with e.before_loop():
        word_mask = Lanes(e.let(f"sext i1 {condition.text} to {element(bits)}"))
        e.hoisted[key] = e.broadcast(word_mask, element(bits), e.width)
    return e.hoisted[key]
