"""Emit decompositions of floats and rarely executed code (``ir.ops.kernel.float_parts``).

Vectors use the AVX-512 instructions if the target has them, else the expansions of ``pullback.codegen.math.legalize``.
"""

from __future__ import annotations

from typing import Any

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, element, vector_of
from pullback.codegen.cpu.llvm.text import RARELY
from pullback.codegen.math.legalize import PLAIN
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, DType, scalar
from pullback.ir.core.value import Value

AVX512_BYTES = 64
# Immediate of vgetmant: significands in [3/4, 3/2), NaN for negative numbers, 1 for zeros.
_INTERVAL = 3 | 3 << 2
_PRESENT_ROUNDING = 4
SHORT = 95
"""Largest total number of instructions of a rare function that is inlined at all its uses in a kernel: two copies of the large
arguments of sech2. A higher limit makes long kernels slower to compile: erfinv has 96, the large arguments of sin have 150."""


def part(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int) -> str:
    """Emit one op that decomposes or composes floats."""
    if e.target.vector_bytes != AVX512_BYTES or width * dtype.bytes > AVX512_BYTES:
        return expand_plain(e, name, texts, dtype, width)
    if name == "significand":
        return _instruction(e, "getmant", texts, dtype, width, str(_INTERVAL))
    if name == "scalb":
        return _instruction(e, "scalef", texts, dtype, width)
    t = vector_of(element(dtype), width)
    exponent = _instruction(e, "getexp", texts, dtype, width)
    significand_exponent = _instruction(e, "getexp", [part(e, "significand", texts, dtype, width)], dtype, width)
    return e.let(f"fsub {t} {exponent}, {significand_exponent}")


def expand_plain(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int) -> str:
    """Emit the expansion of an op into plain ops."""
    b = Builder()
    operands = [Value(scalar(dtype)) for _ in texts]
    result = PLAIN[name](b, *operands)
    e.env.update((v, Lanes(text, 0 if width == 1 else None)) for v, text in zip(operands, texts, strict=True))
    e.block(b.block(operands, (result,)))
    return e.env[result].text


def _instruction(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int, *immediate: str) -> str:
    """Emit an AVX-512 instruction on a full register whose first ``width`` lanes are used."""
    lanes = AVX512_BYTES // dtype.bytes
    t, mask = vector_of(element(dtype), lanes), f"i{lanes}"
    operands = [(t, _widened(e, text, dtype, width, lanes)) for text in texts]
    operands += [*(("i32", value) for value in immediate), (t, "zeroinitializer"), (mask, "-1")]
    operands.append(("i32", str(_PRESENT_ROUNDING)))
    result = e.intrinsic(t, f"llvm.x86.avx512.mask.{name}.p{'d' if dtype.bytes == 8 else 's'}.512", operands)
    if width == lanes:
        return result
    if width == 1:
        return e.let(f"extractelement {t} {result}, i64 0")
    kept = ", ".join(f"i32 {k}" for k in range(width))
    return e.let(f"shufflevector {t} {result}, {t} poison, <{width} x i32> <{kept}>")


def _widened(e: FunctionWriter, text: str, dtype: DType, width: int, lanes: int) -> str:
    """Extend a vector to a full register; the additional lanes are poison."""
    if width == lanes:
        return text
    full, t = vector_of(element(dtype), lanes), vector_of(element(dtype), width)
    if width == 1:
        return e.let(f"insertelement {full} poison, {t} {text}, i64 0")
    places = ", ".join(f"i32 {k}" if k < width else "i32 poison" for k in range(lanes))
    return e.let(f"shufflevector {t} {text}, {t} poison, <{lanes} x i32> <{places}>")


def cold_call(e: FunctionWriter, i: Instruction) -> None:
    """Emit rare code behind a branch that is taken if any lane needs it."""
    condition, *operands = (e.env[v] for v in i.operands)
    width = 1 if condition.is_scalar and all(v.is_scalar for v in operands) else e.width
    texts = [_in_lanes(e, lanes, v.type.dtype, width) for lanes, v in zip(operands, i.operands[1:], strict=True)]
    types = [vector_of(element(v.type.dtype), width) for v in i.operands[1:]]
    usual, result_count = texts[: len(i.results)], len(i.results)
    c = vector_of("i1", width)
    test = any_lane = _in_lanes(e, condition, BOOL, width)
    if width > 1:
        any_lane = e.intrinsic("i1", f"llvm.vector.reduce.or.v{width}i1", [(c, test)])
    slots = [e.slot(t) for t in types[:result_count]]
    for t, slot, text in zip(types, slots, usual, strict=False):
        e.line(f"store {t} {text}, ptr {slot}")
    e.count += 1
    inside, after = f"rare{e.count}", f"usual{e.count}"
    e.declared[RARELY] = None
    e.line(f"br i1 {any_lane}, label %{inside}, label %{after}, !prof !9000")
    with e.conditional():
        e.label(inside, follows=True)
        results = _inline(e, i, texts[result_count:]) if _is_short(e, i, width) else _emit_call(e, i, types, texts, width)
        for t, slot, text, rare in zip(types, slots, usual, results, strict=False):
            e.line(f"store {t} {e.let(f'select {c} {test}, {t} {rare}, {t} {text}')}, ptr {slot}")
        e.line(f"br label %{after}")
    e.label(after, follows=True)
    step = 0 if width == 1 else None
    loads = (Lanes(e.let(f"load {t}, ptr {slot}"), step) for t, slot in zip(types, slots, strict=False))
    e.env.update(zip(i.results, loads, strict=True))


def _is_short(e: FunctionWriter, i: Instruction, width: int) -> bool:
    """Return whether rare code is inlined.

    A call clobbers all vector registers, so that values live across it are in memory even in iterations that do not call.
    """
    function = i.params["function"]
    uses = sum(k.op is i.op and k.params["function"] == function for k in walk(e.kernel.body))
    return width == e.width and uses * len(e.cold[function].instructions) <= SHORT


def _inline(e: FunctionWriter, i: Instruction, texts: list[str]) -> list[str]:
    """Inline rare code; return its results."""
    region, step = e.cold[i.params["function"]], 0 if e.width == 1 else None
    e.env.update((v, Lanes(text, step)) for v, text in zip(region.parameters, texts, strict=True))
    e.block(region)
    return [_in_lanes(e, e.env[v], v.type.dtype, e.width) for v in region.results]


def _emit_call(e: FunctionWriter, i: Instruction, types: list[str], texts: list[str], width: int) -> list[str]:
    """Emit a call of rare code; return its results."""
    result_count = len(i.results)
    arguments = ", ".join(f"{t} {text}" for t, text in zip(types[result_count:], texts[result_count:], strict=True))
    result = f"{{ {', '.join(types[:result_count])} }}"
    returned = e.let(f"call {result} {_function(e, i, width)}({arguments}) nounwind memory(none)")
    return [e.let(f"extractvalue {result} {returned}, {k}") for k in range(result_count)]


def _function(e: FunctionWriter, i: Instruction, width: int) -> str:
    """Return the address of long rare code, emitted once as a separate module that all kernels call."""
    region = e.cold[i.params["function"]]
    name = f"{i.params['function']}_{width}"
    key = region, name, e.target
    if key not in _TEXTS:
        _TEXTS[key] = _text(e.separate_module(name), region, width)
    return e.callee("shared", name, _TEXTS[key])


_TEXTS: dict[tuple[Any, ...], str] = {}


def _text(e: FunctionWriter, region: Block, width: int) -> str:
    """Return the module of a region that uses no values from outside."""
    e.width, step = width, 0 if width == 1 else None
    e.env.update((v, Lanes(f"%p{k}", step)) for k, v in enumerate(region.parameters))
    e.block(region)
    types = [vector_of(element(v.type.dtype), width) for v in region.results]
    result, aggregate = f"{{ {', '.join(types)} }}", "poison"
    for k, (v, t) in enumerate(zip(region.results, types, strict=True)):
        aggregate = e.let(f"insertvalue {result} {aggregate}, {t} {_in_lanes(e, e.env[v], v.type.dtype, width)}, {k}")
    e.line(f"ret {result} {aggregate}")
    parameters = ", ".join(f"{vector_of(element(v.type.dtype), width)} %p{k}" for k, v in enumerate(region.parameters))
    heading = f"define {result} @{e.name}({parameters}) nounwind {{"
    return "\n".join([*e.declared, "", heading, "entry:", *e.entry, *e.lines, "}", ""])


def _in_lanes(e: FunctionWriter, lanes: Lanes, dtype: DType, width: int) -> str:
    return lanes.text if width == 1 else e.vector(lanes, dtype)
