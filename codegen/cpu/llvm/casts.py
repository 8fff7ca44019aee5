"""Conversions between element types in emitted LLVM code, as ``ir.ops.elementwise.semantics.cast`` fixes them."""

from __future__ import annotations

from pullback.codegen.cpu.llvm.lanes import Lanes, element, literal, mangled, vector_of
from pullback.codegen.cpu.llvm.values import Values
from pullback.ir.core.types import F32, F64, DType

X86_REGISTER = 32
"""Bytes of the vector registers that only x86 processors have."""


def cast(e: Values, x: str, source: DType, target: DType, width: int, in_range: bool) -> str:
    """Convert ``x`` from ``source`` to ``target``. ``in_range``: a float is known to fit in the target integer type."""
    s, t = vector_of(element(source), width), vector_of(element(target), width)
    if source is target:
        return x
    if target.is_bool and source.bits == 16 and source.is_float:
        return cast(e, half_to_float(e, x, source, width), F32, target, width, in_range)
    if target.is_bool:
        zero = "zeroinitializer" if width > 1 else ("0.0" if source.is_float else "0")
        return e.let(f"fcmp une {s} {x}, {zero}" if source.is_float else f"icmp ne {s} {x}, {zero}")
    if source.is_float and source.bits == 16:
        return cast(e, half_to_float(e, x, source, width), F32, target, width, in_range)
    if target.is_float and target.bits == 16:
        if source.is_integer or source.is_bool:
            x = e.let(f"{'sitofp' if source.kind == 'i' else 'uitofp'} {s} {x} to {vector_of('double', width)}")
        return float_to_half(e, x if source is F32 else round_to_odd(e, x, width), target, width)
    if source.is_float and target.is_float:
        return e.let(f"{'fpext' if source.bits < target.bits else 'fptrunc'} {s} {x} to {t}")
    if target.is_float:
        return e.let(f"{'sitofp' if source.kind == 'i' else 'uitofp'} {s} {x} to {t}")
    if source.is_float:
        return to_integer(e, x, source, target, width, in_range)
    if source.bits == target.bits and not source.is_bool:
        return x
    verb = "zext" if source.kind in "bu" else "sext"
    return e.let(f"{'trunc' if source.bits > target.bits and not source.is_bool else verb} {s} {x} to {t}")


def has_half_conversions(e: Values, half: DType) -> bool:
    """Return whether the processor converts a 16-bit float in hardware: float16 with F16C (on all processors with FMA).

    Hardware conversions of bfloat16 would flush subnormal numbers, so they are not used.
    """
    return half.name == "f16" and e.target.has_fma


def half_to_float(e: Values, x: str, half: DType, width: int) -> str:
    """Convert the bits of a 16-bit float to float32."""
    f, i, h = vector_of("float", width), vector_of("i32", width), vector_of("half", width)
    if has_half_conversions(e, half):
        short = e.let(f"bitcast {vector_of('i16', width)} {x} to {h}")
        return e.let(f"fpext {h} {short} to {f}")
    bits = e.let(f"zext {vector_of('i16', width)} {x} to {i}")
    if half.name == "bf16":
        return e.let(f"bitcast {i} {e.let(f'shl {i} {bits}, {int32(16, width)}')} to {f}")
    low = e.let(f"and {i} {bits}, {int32(0x7FFF, width)}")
    size = e.let(f"shl {i} {low}, {int32(13, width)}")
    scale = in_all(literal(2.0**112, F32), "float", width)
    scaled = e.let(f"fmul {f} {e.let(f'bitcast {i} {size} to {f}')}, {scale}")
    finite = e.let(f"bitcast {f} {scaled} to {i}")
    is_special = e.let(f"icmp uge {i} {size}, {int32(0x7C00 << 13, width)}")
    special = e.let(f"or {i} {size}, {int32(0x7F800000, width)}")
    magnitude = e.let(f"select {vector_of('i1', width)} {is_special}, {i} {special}, {i} {finite}")
    sign = e.let(f"and {i} {bits}, {int32(0x8000, width)}")
    signed = e.let(f"or {i} {magnitude}, {e.let(f'shl {i} {sign}, {int32(16, width)}')}")
    return e.let(f"bitcast {i} {signed} to {f}")


def float_to_half(e: Values, x: str, half: DType, width: int) -> str:
    """Round a float32 to a 16-bit float, ties to even; return its bits."""
    f, i, h, c = vector_of("float", width), vector_of("i32", width), vector_of("half", width), vector_of("i1", width)
    if has_half_conversions(e, half):
        return e.let(f"bitcast {h} {e.let(f'fptrunc {f} {x} to {h}')} to {vector_of('i16', width)}")
    bits = e.let(f"bitcast {f} {x} to {i}")
    size = e.let(f"and {i} {bits}, {int32(0x7FFFFFFF, width)}")
    is_nan = e.let(f"icmp ugt {i} {size}, {int32(0x7F800000, width)}")
    shift = 16 if half.name == "bf16" else 13
    kept = e.let(f"lshr {i} {size}, {int32(shift, width)}")
    odd = e.let(f"and {i} {kept}, {int32(1, width)}")
    rebias = 0 if half.name == "bf16" else -112 << 23
    biased = e.let(f"add {i} {e.let(f'add {i} {size}, {odd}')}, {int32(rebias + (1 << (shift - 1)) - 1, width)}")
    result = e.let(f"lshr {i} {biased}, {int32(shift, width)}")
    if half.name == "f16":
        moved = e.let(f"fadd {f} {e.let(f'bitcast {i} {size} to {f}')}, {in_all(literal(0.5, F32), 'float', width)}")
        tiny = e.let(f"sub {i} {e.let(f'bitcast {f} {moved} to {i}')}, {int32(0x3F000000, width)}")
        is_tiny = e.let(f"icmp ult {i} {size}, {int32(113 << 23, width)}")
        is_huge = e.let(f"icmp uge {i} {size}, {int32(143 << 23, width)}")
        result = e.let(f"select {c} {is_tiny}, {i} {tiny}, {i} {result}")
        result = e.let(f"select {c} {is_huge}, {i} {int32(0x7C00, width)}, {i} {result}")
    quiet = int32(0x7FC0 if half.name == "bf16" else 0x7E00, width)
    result = e.let(f"select {c} {is_nan}, {i} {quiet}, {i} {result}")
    sign = e.let(f"lshr {i} {e.let(f'xor {i} {bits}, {size}')}, {int32(16, width)}")
    return e.let(f"trunc {i} {e.let(f'or {i} {result}, {sign}')} to {vector_of('i16', width)}")


def int32(value: int, width: int) -> str:
    """Return an i32 constant in all lanes."""
    return in_all(str(value), "i32", width)


def in_all(text: str, name: str, width: int) -> str:
    """Return a constant in all lanes, written as a vector of equal elements."""
    return "<" + ", ".join([f"{name} {text}"] * width) + ">" if width > 1 else text


def round_to_odd(e: Values, x: str, width: int) -> str:
    """Round a float64 to float32 by round-to-odd: inexact results have an odd last bit, so that rounding once more is exact."""
    d, f, i, c = (vector_of(name, width) for name in ("double", "float", "i32", "i1"))
    nearest = e.let(f"fptrunc {d} {x} to {f}")
    widened_back = e.let(f"fpext {f} {nearest} to {d}")
    m = mangled("double", width)
    size, rounded = (e.intrinsic(d, f"llvm.fabs.{m}", [(d, v)]) for v in (x, widened_back))
    up = e.let(f"zext {c} {e.let(f'fcmp ogt {d} {rounded}, {size}')} to {i}")
    odd = e.let(f"zext {c} {e.let(f'fcmp une {d} {widened_back}, {x}')} to {i}")
    bits = e.let(f"sub {i} {e.let(f'bitcast {f} {nearest} to {i}')}, {up}")
    return e.let(f"bitcast {i} {e.let(f'or {i} {bits}, {odd}')} to {f}")


def to_integer(e: Values, x: str, source: DType, target: DType, width: int, in_range: bool) -> str:
    """Convert a float to an integer; NaN and out-of-range values give the least i32 or i64, and narrower types wrap from
    these."""
    if in_range:
        verb = "fptosi" if target.kind == "i" else "fptoui"
        return e.let(f"{verb} {vector_of(element(source), width)} {x} to {vector_of(element(target), width)}")
    if source.bits < 64:
        x = e.let(f"fpext {vector_of(element(source), width)} {x} to {vector_of('double', width)}")
    if target.name == "u64":
        return to_u64(e, x, width)
    bits = 64 if target.bits > 32 or target.name == "u32" else 32
    signed = to_signed(e, x, bits, width)
    if bits == target.bits:
        return signed
    return e.let(f"trunc {vector_of(f'i{bits}', width)} {signed} to {vector_of(element(target), width)}")


def to_signed(e: Values, x: str, bits: int, width: int) -> str:
    """Convert a float64 to i32 or i64; values out of range and NaN give the least integer. So does the instruction of x86, the
    only processors whose vector registers have 32 bytes and more."""
    if width == 1 and e.target.vector_bytes >= X86_REGISTER:
        both = e.let(f"insertelement <2 x double> zeroinitializer, double {x}, i64 0")
        return e.intrinsic(f"i{bits}", f"llvm.x86.sse2.cvttsd2si{'64' if bits == 64 else ''}", [("<2 x double>", both)])
    d, t, c = vector_of("double", width), vector_of(f"i{bits}", width), vector_of("i1", width)
    low = -(2.0 ** (bits - 1)) - (1.0 if bits == 32 else 0.0)
    above = e.let(f"fcmp {'ogt' if bits == 32 else 'oge'} {d} {x}, {double_constant(e, low, width)}")
    below = e.let(f"fcmp olt {d} {x}, {double_constant(e, 2.0 ** (bits - 1), width)}")
    good = e.let(f"and {c} {above}, {below}")
    safe = e.let(f"select {c} {good}, {d} {x}, {d} {double_constant(e, 0.0, width)}")
    converted = e.let(f"fptosi {d} {safe} to {t}")
    least = e.broadcast(Lanes(str(-(2 ** (bits - 1)))), f"i{bits}", width) if width > 1 else str(-(2 ** (bits - 1)))
    return e.let(f"select {c} {good}, {t} {converted}, {t} {least}")


def to_u64(e: Values, x: str, width: int) -> str:
    """Convert a float64 to u64: values of 2**63 and above are shifted down before the signed conversion and their top bit set
    after."""
    d, t, c = vector_of("double", width), vector_of("i64", width), vector_of("i1", width)
    is_large = e.let(f"fcmp oge {d} {x}, {double_constant(e, 2.0**63, width)}")
    moved = e.let(f"fsub {d} {x}, {double_constant(e, 2.0**63, width)}")
    low = to_signed(e, e.let(f"select {c} {is_large}, {d} {moved}, {d} {x}"), 64, width)
    top = e.broadcast(Lanes(str(-(2**63))), "i64", width) if width > 1 else str(-(2**63))
    flipped = e.let(f"xor {t} {low}, {top}")
    return e.let(f"select {c} {is_large}, {t} {flipped}, {t} {low}")


def double_constant(e: Values, value: float, width: int) -> str:
    """Return a float64 constant in all lanes."""
    text = literal(value, F64)
    return e.broadcast(Lanes(text), "double", width) if width > 1 else text
