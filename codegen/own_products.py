"""own_products: matrix products that a library would do become ``product``, where that is faster.

Requires: a lowered module for the CPU. Keeps: its meaning, not the order of additions. Kernels that loops launch keep the
library: most of their products are small, and all kernels of such a program are compiled as one module.
"""

from __future__ import annotations

from dataclasses import replace

from pullback.codegen.processors import Target
from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.library import gemm
from pullback.ir.ops.program import launch
from pullback.ir.structure import Block, Function, Instruction, Module, Value, walk
from pullback.ir.types import F32, F64, I64, Extent, scalar

REGISTER = 64
"""The vector registers of machines on which this has been measured to be faster, in bytes."""
LEAST_PRODUCTS = (1 << 18) + 1
"""The multiplications of the least product of our own."""
FLAT, LARGE = 40, 1 << 21
"""Of float64, results of so few rows are the library's where the right operand has so many elements: that comes from memory, and
tiles wait until it is packed."""


def own_products(module: Module, machine: Target, always: bool = False) -> Module:
    """The module with products of its own in the kernels of which one is all they do, if that is faster on a machine or is
    wanted ``always``. Where a choice that was measured is known, it belongs here."""
    if not always and (machine.vector_bytes != REGISTER or not machine.has_fma):
        return module
    program, *kernels = module.functions
    inside = {
        i.params["kernel"] for outer in program.instructions for region in outer.regions for i in walk(region) if i.op is launch
    }
    return Module((program, *(k if k.name in inside else _owned(k, always) for k in kernels)))


def _owned(kernel: Function, always: bool) -> Function:
    if not any(_is_plain(i) for i in kernel.instructions):
        return kernel
    made: list[Instruction] = []
    for i in kernel.instructions:
        if _is_plain(i):
            _spell(Builder(i.loc, made), i, always)
        else:
            made.append(i)
    return replace(kernel, body=replace(kernel.body, instructions=tuple(made)))


def _is_plain(i: Instruction) -> bool:
    return i.op is gemm and i.operands[0].type.rank == 2 and i.operands[0].type.dtype in (F32, F64)


def _spell(b: Builder, i: Instruction, always: bool) -> None:
    left, right, out = i.operands
    shape = left.type.shape
    turned_left, turned_right = i.params["ta"], i.params["tb"]
    rows, columns = (_size(b, e) for e in out.type.shape)
    terms = _size(b, shape[0] if turned_left else shape[1])
    if not always:
        is_small = b.lt(b.mul(b.mul(rows, columns), terms), b.const(LEAST_PRODUCTS, I64))
        by_library = is_small
        if left.type.dtype is F64:
            is_flat = b.le(rows, b.const(FLAT, I64))
            is_large = b.ge(b.mul(columns, terms), b.const(LARGE, I64))
            by_library = b.bitor(is_small, b.bitand(is_flat, is_large))
        b.emit(OPS["if"], (by_library,), {}, [Block((), (i,), ())])
        rows = b.select(by_library, b.const(0, I64), rows)
    regions = [
        _operand(b, left, ("p", "i") if turned_left else ("i", "p"), "ip"),
        _operand(b, right, ("j", "p") if turned_right else ("p", "j"), "pj"),
    ]
    inner, row, column = Builder(b.loc), Value(scalar(I64), "i"), Value(scalar(I64), "j")
    total = Value(scalar(out.type.dtype), "sum")
    inner.store(total, out, row, column)
    b.emit(OPS["product"], (rows, columns, terms), {}, [*regions, inner.block([row, column, total], [])])


def _operand(b: Builder, ref: Value, index: tuple[str, str], order: str) -> Block:
    inner = Builder(b.loc)
    places = {name: Value(scalar(I64), name) for name in order}
    return inner.block([places[name] for name in order], [inner.load(ref, *(places[name] for name in index))])


def _size(b: Builder, extent: Extent) -> Value:
    return b.const(extent, I64) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]
