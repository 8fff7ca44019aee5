"""Conversions between element types in emitted LLVM code, as ``ir.ops.meaning.cast`` fixes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pullback.codegen.lanes import Lanes, element, literal, mangled, wide
from pullback.ir.types import F64, DType

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter


def cast(e: Emitter, x: str, source: DType, target: DType, width: int, in_range: bool) -> str:
    s, t = wide(element(source), width), wide(element(target), width)
    if source is target:
        return x
    if target.is_bool:
        zero = "zeroinitializer" if width > 1 else ("0.0" if source.is_float else "0")
        return e.let(f"fcmp une {s} {x}, {zero}" if source.is_float else f"icmp ne {s} {x}, {zero}")
    if source.is_float and target.is_float:
        if source.bits == target.bits:
            x, s = e.let(f"fpext {s} {x} to {wide('float', width)}"), wide("float", width)
            return e.let(f"fptrunc {s} {x} to {t}")
        if source.bits == 64 and target.bits == 16:
            x, s = to_odd(e, x, width), wide("float", width)
        return e.let(f"{'fpext' if source.bits < target.bits else 'fptrunc'} {s} {x} to {t}")
    if target.is_float:
        verb = "sitofp" if source.kind == "i" else "uitofp"
        if target.bits > 16:
            return e.let(f"{verb} {s} {x} to {t}")
        exact = to_odd(e, e.let(f"{verb} {s} {x} to {wide('double', width)}"), width)
        return e.let(f"fptrunc {wide('float', width)} {exact} to {t}")
    if source.is_float:
        return to_integer(e, x, source, target, width, in_range)
    if source.bits == target.bits and not source.is_bool:
        return x
    verb = "zext" if source.kind in "bu" else "sext"
    return e.let(f"{'trunc' if source.bits > target.bits and not source.is_bool else verb} {s} {x} to {t}")


def to_odd(e: Emitter, x: str, width: int) -> str:
    """A double as a float whose last bit is set if it is not exact, so that rounding it again rounds once."""
    d, f, i, c = (wide(name, width) for name in ("double", "float", "i32", "i1"))
    near = e.let(f"fptrunc {d} {x} to {f}")
    back = e.let(f"fpext {f} {near} to {d}")
    m = mangled("double", width)
    size, rounded = (e.intrinsic(d, f"llvm.fabs.{m}", [(d, v)]) for v in (x, back))
    up = e.let(f"zext {c} {e.let(f'fcmp ogt {d} {rounded}, {size}')} to {i}")
    odd = e.let(f"zext {c} {e.let(f'fcmp une {d} {back}, {x}')} to {i}")
    bits = e.let(f"sub {i} {e.let(f'bitcast {f} {near} to {i}')}, {up}")
    return e.let(f"bitcast {i} {e.let(f'or {i} {bits}, {odd}')} to {f}")


def to_integer(e: Emitter, x: str, source: DType, target: DType, width: int, in_range: bool) -> str:
    """NaN and values out of range give the least value of i32 or i64; other types convert through those and wrap."""
    if in_range:
        verb = "fptosi" if target.kind == "i" else "fptoui"
        return e.let(f"{verb} {wide(element(source), width)} {x} to {wide(element(target), width)}")
    if source.bits < 64:
        x = e.let(f"fpext {wide(element(source), width)} {x} to {wide('double', width)}")
    if target.name == "u64":
        return to_u64(e, x, width)
    bits = 64 if target.bits > 32 or target.name == "u32" else 32
    found = to_signed(e, x, bits, width)
    if bits == target.bits:
        return found
    return e.let(f"trunc {wide(f'i{bits}', width)} {found} to {wide(element(target), width)}")


def to_signed(e: Emitter, x: str, bits: int, width: int) -> str:
    d, t, c = wide("double", width), wide(f"i{bits}", width), wide("i1", width)
    low = -(2.0 ** (bits - 1)) - (1.0 if bits == 32 else 0.0)
    above = e.let(f"fcmp {'ogt' if bits == 32 else 'oge'} {d} {x}, {number(e, low, width)}")
    below = e.let(f"fcmp olt {d} {x}, {number(e, 2.0 ** (bits - 1), width)}")
    good = e.let(f"and {c} {above}, {below}")
    safe = e.let(f"select {c} {good}, {d} {x}, {d} {number(e, 0.0, width)}")
    whole = e.let(f"fptosi {d} {safe} to {t}")
    least = e.spread(Lanes(str(-(2 ** (bits - 1)))), f"i{bits}", width) if width > 1 else str(-(2 ** (bits - 1)))
    return e.let(f"select {c} {good}, {t} {whole}, {t} {least}")


def to_u64(e: Emitter, x: str, width: int) -> str:
    d, t, c = wide("double", width), wide("i64", width), wide("i1", width)
    high = e.let(f"fcmp oge {d} {x}, {number(e, 2.0**63, width)}")
    moved = e.let(f"fsub {d} {x}, {number(e, 2.0**63, width)}")
    low = to_signed(e, e.let(f"select {c} {high}, {d} {moved}, {d} {x}"), 64, width)
    top = e.spread(Lanes(str(-(2**63))), "i64", width) if width > 1 else str(-(2**63))
    flipped = e.let(f"xor {t} {low}, {top}")
    return e.let(f"select {c} {high}, {t} {flipped}, {t} {low}")


def number(e: Emitter, value: float, width: int) -> str:
    text = literal(value, F64)
    return e.spread(Lanes(text), "double", width) if width > 1 else text
