"""own_products: replace library matrix products by ``product`` where generated code is faster.

Requires: a lowered module for the CPU. Keeps: its meaning, but not the order of additions. Where either may be faster the
kernel contains both, and the class of the run-time extents (``shape_classes``) and the choice for that class select one.
Strided operands are read in place where possible. Kernels launched in loops keep the library call: most of their products are
small, and all kernels of such a program are compiled as one module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pullback.codegen.analysis.loop_kernels import kernels_in_loops
from pullback.codegen.cpu.matmul.shape_classes import CLASSES, LIMITS, SUBJECT, has_choice
from pullback.codegen.cpu.matmul.split_k import is_tall
from pullback.codegen.cpu.matmul.strided_operands import expand_strided_or_copy
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, Module
from pullback.ir.core.types import BOOL, COMPLEX_OF, I64, Extent, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import StridedOrCopy, is_strided
from pullback.ir.ops.library.routines import gemm


def own_products(module: Module, machine: Target, always: bool = False) -> Module:
    """Add generated products to the kernels that consist of one product, in addition to the library call where both may be
    faster. ``always``: replace the library call."""
    program, *kernels = module.functions
    inside = kernels_in_loops(program)
    kernels_out = (owned(k, machine, always) if k.name not in inside or _is_alone(k, always) else k for k in kernels)
    return Module((program, *kernels_out))


def owned(kernel: Function, machine: Target, always: bool = False, both: bool = False) -> Function:
    """Add generated products to one kernel. ``both``: keep the library call and generated code on any machine."""
    if not (always or both or has_choice(machine)) or not any(_is_plain(i) for i in kernel.instructions):
        return kernel
    return replace(kernel, body=_with_products(kernel.body, lambda b, i, strided: _expand(b, i, strided, always, machine)))


def of_library(body: Block, machine: Target) -> Block:
    """Prepare a kernel's body whose remaining products are library calls: expand their strided operands."""
    if not any(isinstance(i.op, StridedOrCopy) for i in body.instructions):
        return body

    def expand(b: Builder, i: Instruction, strided: Sequence[Instruction]) -> None:
        for operand in strided:
            expand_strided_or_copy(b, operand, None, [_size(b, e) for e in _extents(i)], machine)
        b.append(i)

    return _with_products(body, expand)


def _with_products(body: Block, expand: Callable[[Builder, Instruction, Sequence[Instruction]], None]) -> Block:
    """Rebuild a body with each plain product replaced by ``expand``, which also receives the strided operands that precede
    it."""
    instructions: list[Instruction] = []
    strided: list[Instruction] = []
    for i in body.instructions:
        if isinstance(i.op, StridedOrCopy):
            strided.append(i)
        elif _is_plain(i):
            expand(Builder(i.loc, instructions), i, strided)
            strided = []
        else:
            instructions.append(i)
    return replace(body, instructions=tuple(instructions))


def _is_alone(kernel: Function, always: bool) -> bool:
    """Return whether a kernel contains a complex product in a program without library calls, which nothing else can compute."""
    return always and any(_is_plain(i) and gemm.pairs([v.type for v in i.operands]) for i in kernel.instructions)


def _is_plain(i: Instruction) -> bool:
    """Return whether an instruction is a library gemm."""
    return i.op is gemm


def _extents(i: Instruction) -> tuple[Extent, Extent, Extent]:
    """Return M, K and N of a product."""
    left, _, out = (v.type.shape for v in i.operands)
    return out[0], left[0 if i.params["transpose_a"] else 1], out[1]


def _expand(b: Builder, i: Instruction, strided: Sequence[Instruction], always: bool, machine: Target) -> None:
    """Emit a product: a choice by class between the library call and the generated ``product``, or the latter alone."""
    left, right, out = i.operands
    is_complex = bool(gemm.pairs([v.type for v in i.operands]))
    dtype = COMPLEX_OF[left.type.dtype] if is_complex else left.type.dtype
    left_transposed, right_transposed = i.params["transpose_a"], i.params["transpose_b"]
    extents = _extents(i)
    rows, depth, columns = (_size(b, e) for e in extents)
    is_generated = b.const(True, BOOL)
    if not always:
        bits = b.emit(OPS["tuned"], (), {"subject": SUBJECT, "dtype": dtype, "extents": extents})[0]
        is_generated = _is_generated(b, bits, (rows, depth, columns), dtype.part.bytes)
    lanes = machine.vector_bytes // dtype.part.bytes
    in_rows = is_tall(b, (rows, depth, columns), lanes) if strided and not is_complex else None
    for operand in strided:
        expand_strided_or_copy(b, operand, is_generated, (rows, depth, columns), machine, in_rows)
    if not always:
        b.emit(OPS["if"], (b.bitnot(is_generated),), {}, [Block((), (i,), ())])
        rows = b.select(is_generated, rows, b.const(0, I64))
    parts, conj = 2 if is_complex else 1, i.params.get("conj", (False, False))
    regions = [
        _operand(b, left, ("p", "i") if left_transposed else ("i", "p"), "ip", parts, conj[0]),
        _operand(b, right, ("j", "p") if right_transposed else ("p", "j"), "pj", parts, conj[1]),
    ]
    inner, row, column = Builder(b.loc), Value(scalar(I64), "i"), Value(scalar(I64), "j")
    sums = [Value(scalar(out.type.dtype), "sum") for _ in range(parts)]
    for value, part in zip(sums, part_indices(inner, parts), strict=True):
        inner.store(value, out, row, column, *part)
    strided_positions = tuple(k for k, ref in enumerate((left, right)) if is_strided(ref))
    params = {"in_place": strided_positions} if strided_positions else {}
    b.emit(OPS["product"], (rows, columns, depth), params, [*regions, inner.block([row, column, *sums], [])])


def _is_generated(b: Builder, bits: Value, shape: tuple[Value, Value, Value], itemsize: int) -> Value:
    """Return whether the bit of the product's class in ``bits`` selects generated code."""
    rows, depth, columns = shape
    one, right = b.const(1, I64), b.mul(depth, columns)
    width = b.mul(columns, b.const(itemsize, I64))
    measures = dict(zip(LIMITS, (rows, depth, b.mul(rows, right), width), strict=True))
    class_index = b.const(len(CLASSES) - 1, I64)
    for k, shape_class in reversed(list(enumerate(CLASSES[:-1]))):
        limits = [
            b.le(measure, b.const(getattr(shape_class, name), I64))
            for name, measure in measures.items()
            if getattr(shape_class, name)
        ]
        limits += [b.ge(right, b.const(shape_class.right, I64))] if shape_class.right else []
        limits += [b.ge(depth, b.const(shape_class.deep, I64))] if shape_class.deep else []
        limits += [b.ge(b.mul(rows, columns), b.const(shape_class.results, I64))] if shape_class.results else []
        fits = limits[0]
        for limit in limits[1:]:
            fits = b.bitand(fits, limit)
        class_index = b.select(fits, b.const(k, I64), class_index)
    return b.eq(b.bitand(b.raw_shr(bits, class_index), one), one)


def _operand(b: Builder, ref: Value, index: tuple[str, str], parameter_order: str, parts: int, conj: bool) -> Block:
    """Build the region that loads an element of an operand, conjugated if ``conj``."""
    inner = Builder(b.loc)
    parameters = {name: Value(scalar(I64), name) for name in parameter_order}
    loaded = [inner.load(ref, *(parameters[name] for name in index), *part) for part in part_indices(inner, parts)]
    return inner.block([parameters[name] for name in parameter_order], [loaded[0], inner.neg(loaded[1])] if conj else loaded)


def part_indices(b: Builder, parts: int) -> Sequence[tuple[Value, ...]]:
    """Return the trailing index of each part of an element: one empty index for a real element, the positions 0 and 1 for a
    complex one."""
    return [()] if parts == 1 else [(b.const(k, I64),) for k in range(parts)]


def _size(b: Builder, extent: Extent) -> Value:
    """Return an extent as a value."""
    return b.const(extent, I64) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]
