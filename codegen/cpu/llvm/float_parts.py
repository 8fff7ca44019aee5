"""Floats taken apart and rare code in emitted LLVM code (``ir.ops.kernel.float_parts``): the instructions of AVX-512 where
vectors are that wide, else the ops spelled out by ``pullback.codegen.math.legalize``."""

from __future__ import annotations

from typing import Any

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter
from pullback.codegen.cpu.llvm.lanes import Lanes, element, wide
from pullback.codegen.cpu.llvm.text import RARELY
from pullback.codegen.math.legalize import PLAIN
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import BOOL, DType, scalar
from pullback.ir.core.value import Value

AVX512_BYTES = 64
# Significands in [3/4, 3/2), NaN for negative numbers, 1 for zeros.
_INTERVAL = 3 | 3 << 2
_PRESENT_ROUNDING = 4
SHORT = 95
"""Instructions at most of rare code that is not called, in all places of a kernel together: those of the far end of sech2 twice.
More would make long kernels longer to compile; that of erfinv has 96, the large arguments of sines 150."""


def part(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int) -> str:
    """An op of float parts."""
    if e.target.vector_bytes != AVX512_BYTES or width * dtype.bytes > AVX512_BYTES:
        return spelled_out(e, name, texts, dtype, width)
    if name == "significand":
        return _instruction(e, "getmant", texts, dtype, width, str(_INTERVAL))
    if name == "scalb":
        return _instruction(e, "scalef", texts, dtype, width)
    t = wide(element(dtype), width)
    own = _instruction(e, "getexp", texts, dtype, width)
    rest = _instruction(e, "getexp", [part(e, "significand", texts, dtype, width)], dtype, width)
    return e.let(f"fsub {t} {own}, {rest}")


def spelled_out(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int) -> str:
    """An op by its recipe."""
    b = Builder()
    operands = [Value(scalar(dtype)) for _ in texts]
    found = PLAIN[name](b, *operands)
    e.env.update((v, Lanes(text, 0 if width == 1 else None)) for v, text in zip(operands, texts, strict=True))
    e.block(b.block(operands, (found,)))
    return e.env[found].text


def _instruction(e: FunctionWriter, name: str, texts: list[str], dtype: DType, width: int, *immediate: str) -> str:
    """An instruction of AVX-512 on a whole register, of which the first ``width`` lanes count."""
    lanes = AVX512_BYTES // dtype.bytes
    t, mask = wide(element(dtype), lanes), f"i{lanes}"
    operands = [(t, _widened(e, text, dtype, width, lanes)) for text in texts]
    operands += [*(("i32", value) for value in immediate), (t, "zeroinitializer"), (mask, "-1")]
    operands.append(("i32", str(_PRESENT_ROUNDING)))
    found = e.intrinsic(t, f"llvm.x86.avx512.mask.{name}.p{'d' if dtype.bytes == 8 else 's'}.512", operands)
    if width == lanes:
        return found
    if width == 1:
        return e.let(f"extractelement {t} {found}, i64 0")
    kept = ", ".join(f"i32 {k}" for k in range(width))
    return e.let(f"shufflevector {t} {found}, {t} poison, <{width} x i32> <{kept}>")


def _widened(e: FunctionWriter, text: str, dtype: DType, width: int, lanes: int) -> str:
    if width == lanes:
        return text
    whole, t = wide(element(dtype), lanes), wide(element(dtype), width)
    if width == 1:
        return e.let(f"insertelement {whole} poison, {t} {text}, i64 0")
    places = ", ".join(f"i32 {k}" if k < width else "i32 poison" for k in range(lanes))
    return e.let(f"shufflevector {t} {text}, {t} poison, <{lanes} x i32> <{places}>")


def cold_call(e: FunctionWriter, i: Instruction) -> None:
    """A branch around code that some lane needs."""
    condition, *operands = (e.env[v] for v in i.operands)
    width = 1 if condition.is_scalar and all(v.is_scalar for v in operands) else e.width
    texts = [_in_lanes(e, lanes, v.type.dtype, width) for lanes, v in zip(operands, i.operands[1:], strict=True)]
    types = [wide(element(v.type.dtype), width) for v in i.operands[1:]]
    usual, number = texts[: len(i.results)], len(i.results)
    c = wide("i1", width)
    test = any_lane = _in_lanes(e, condition, BOOL, width)
    if width > 1:
        any_lane = e.intrinsic("i1", f"llvm.vector.reduce.or.v{width}i1", [(c, test)])
    slots = [e.slot(t) for t in types[:number]]
    for t, slot, text in zip(types, slots, usual, strict=False):
        e.line(f"store {t} {text}, ptr {slot}")
    e.count += 1
    inside, after = f"rare{e.count}", f"usual{e.count}"
    e.declared[RARELY] = None
    e.line(f"br i1 {any_lane}, label %{inside}, label %{after}, !prof !9000")
    with e.aside():
        e.label(inside, follows=True)
        results = _in_place(e, i, texts[number:]) if _is_short(e, i, width) else _called(e, i, types, texts, width)
        for t, slot, text, one in zip(types, slots, usual, results, strict=False):
            e.line(f"store {t} {e.let(f'select {c} {test}, {t} {one}, {t} {text}')}, ptr {slot}")
        e.line(f"br label %{after}")
    e.label(after, follows=True)
    step = 0 if width == 1 else None
    loads = (Lanes(e.let(f"load {t}, ptr {slot}"), step) for t, slot in zip(types, slots, strict=False))
    e.env.update(zip(i.results, loads, strict=True))


def _is_short(e: FunctionWriter, i: Instruction, width: int) -> bool:
    """Whether rare code stands in the kernel itself. Around a call everything is in memory that is used before and after it, in
    runs of a loop that do not call, too: no vector register survives one."""
    function = i.params["function"]
    uses = sum(k.op is i.op and k.params["function"] == function for k in walk(e.kernel.body))
    return width == e.width and uses * len(e.cold[function].instructions) <= SHORT


def _in_place(e: FunctionWriter, i: Instruction, texts: list[str]) -> list[str]:
    """The results of rare code that is emitted here."""
    region, step = e.cold[i.params["function"]], 0 if e.width == 1 else None
    e.env.update((v, Lanes(text, step)) for v, text in zip(region.parameters, texts, strict=True))
    e.block(region)
    return [_in_lanes(e, e.env[v], v.type.dtype, e.width) for v in region.results]


def _called(e: FunctionWriter, i: Instruction, types: list[str], texts: list[str], width: int) -> list[str]:
    """The results of a call of rare code."""
    number = len(i.results)
    given = ", ".join(f"{t} {text}" for t, text in zip(types[number:], texts[number:], strict=True))
    result = f"{{ {', '.join(types[:number])} }}"
    found = e.let(f"call {result} {_function(e, i, width)}({given}) nounwind memory(none)")
    return [e.let(f"extractvalue {result} {found}, {k}") for k in range(number)]


def _function(e: FunctionWriter, i: Instruction, width: int) -> str:
    """The function that long rare code is: a module of its own, which all kernels call that need it."""
    region = e.cold[i.params["function"]]
    name = f"{i.params['function']}_{width}"
    key = region, name, e.target
    if key not in _TEXTS:
        _TEXTS[key] = _text(e.apart(name), region, width)
    return e.callee("shared", name, _TEXTS[key])


_TEXTS: dict[tuple[Any, ...], str] = {}


def _text(e: FunctionWriter, region: Block, width: int) -> str:
    """The module of a region that reads nothing from outside."""
    e.width, step = width, 0 if width == 1 else None
    e.env.update((v, Lanes(f"%p{k}", step)) for k, v in enumerate(region.parameters))
    e.block(region)
    types = [wide(element(v.type.dtype), width) for v in region.results]
    result, found = f"{{ {', '.join(types)} }}", "poison"
    for k, (v, t) in enumerate(zip(region.results, types, strict=True)):
        found = e.let(f"insertvalue {result} {found}, {t} {_in_lanes(e, e.env[v], v.type.dtype, width)}, {k}")
    e.line(f"ret {result} {found}")
    given = ", ".join(f"{wide(element(v.type.dtype), width)} %p{k}" for k, v in enumerate(region.parameters))
    heading = f"define {result} @{e.name}({given}) nounwind {{"
    return "\n".join([*e.declared, "", heading, "entry:", *e.entry, *e.lines, "}", ""])


def _in_lanes(e: FunctionWriter, lanes: Lanes, dtype: DType, width: int) -> str:
    return lanes.text if width == 1 else e.vector(lanes, dtype)
