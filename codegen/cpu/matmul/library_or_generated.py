"""own_products: matrix products that a library would do become ``product``, where that is faster.

Requires: a lowered module for the CPU. Keeps: its meaning, not the order of additions. Operands are read in place
where a ``strided_or_copy`` allows it.
Where both may be faster, both are in the kernel, and it goes by the class of its extents (``product_classes``) and by what was
chosen for that. Kernels that loops launch keep the library: most of their products are small, and all kernels of such a program
are compiled as one module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pullback.codegen.analysis.loop_kernels import kernels_in_loops
from pullback.codegen.cpu.matmul.shape_classes import CLASSES, LIMITS, SUBJECT, has_choice
from pullback.codegen.cpu.matmul.split_k import is_tall
from pullback.codegen.cpu.matmul.strided_operands import spell_lying
from pullback.codegen.targets import Target
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Block, Function, Instruction, Module
from pullback.ir.core.types import BOOL, COMPLEX_OF, I64, Extent, scalar
from pullback.ir.core.value import Value
from pullback.ir.ops.kernel.kernel import StridedOrCopy, is_strided
from pullback.ir.ops.library.routines import gemm


def own_products(module: Module, machine: Target, always: bool = False) -> Module:
    """The module with products of its own in the kernels of which one is all they do, beside the library's on machines where
    some are faster; ``always``: instead of these."""
    program, *kernels = module.functions
    inside = kernels_in_loops(program)
    made = (owned(k, machine, always) if k.name not in inside or _is_alone(k, always) else k for k in kernels)
    return Module((program, *made))


def owned(kernel: Function, machine: Target, always: bool = False, ways: bool = False) -> Function:
    """One kernel of such a module; with both ``ways`` on any machine."""
    if not (always or ways or has_choice(machine)) or not any(_is_plain(i) for i in kernel.instructions):
        return kernel
    return _with_products(kernel, lambda b, i, lying: _spell(b, i, lying, always, machine))


def of_library(kernel: Function, machine: Target) -> Function:
    """A kernel of which the library does all products that are left: operands of these are read as they lie."""
    if not any(isinstance(i.op, StridedOrCopy) for i in kernel.instructions):
        return kernel

    def spell(b: Builder, i: Instruction, lying: Sequence[Instruction]) -> None:
        for each in lying:
            spell_lying(b, each, None, [_size(b, e) for e in _extents(i)], machine)
        b.append(i)

    return _with_products(kernel, spell)


def _with_products(kernel: Function, spell: Callable[[Builder, Instruction, Sequence[Instruction]], None]) -> Function:
    """The kernel with plain products spelled out, each with those of its operands that are read as they lie."""
    made: list[Instruction] = []
    lying: list[Instruction] = []
    for i in kernel.instructions:
        if isinstance(i.op, StridedOrCopy):
            lying.append(i)
        elif _is_plain(i):
            spell(Builder(i.loc, made), i, lying)
            lying = []
        else:
            made.append(i)
    return replace(kernel, body=replace(kernel.body, instructions=tuple(made)))


def _is_alone(kernel: Function, always: bool) -> bool:
    """Whether a kernel has a product of complex numbers and there may be no library: nothing else stands for that one."""
    return always and any(_is_plain(i) and gemm.pairs([v.type for v in i.operands]) for i in kernel.instructions)


def _is_plain(i: Instruction) -> bool:
    return i.op is gemm


def _extents(i: Instruction) -> tuple[Extent, Extent, Extent]:
    """The rows, terms and columns of a product."""
    left, _, out = (v.type.shape for v in i.operands)
    return out[0], left[0 if i.params["transpose_a"] else 1], out[1]


def _spell(b: Builder, i: Instruction, lying: Sequence[Instruction], always: bool, machine: Target) -> None:
    left, right, out = i.operands
    is_complex = bool(gemm.pairs([v.type for v in i.operands]))
    dtype = COMPLEX_OF[left.type.dtype] if is_complex else left.type.dtype
    turned_left, turned_right = i.params["transpose_a"], i.params["transpose_b"]
    extents = _extents(i)
    rows, terms, columns = (_size(b, e) for e in extents)
    by_us = b.const(True, BOOL)
    if not always:
        bits = b.emit(OPS["tuned"], (), {"subject": SUBJECT, "dtype": dtype, "extents": extents})[0]
        by_us = _is_ours(b, bits, (rows, terms, columns), dtype.part.bytes)
    lanes = machine.vector_bytes // dtype.part.bytes
    in_rows = is_tall(b, (rows, terms, columns), lanes) if lying and not is_complex else None
    for each in lying:
        spell_lying(b, each, by_us, (rows, terms, columns), machine, in_rows)
    if not always:
        b.emit(OPS["if"], (b.bitnot(by_us),), {}, [Block((), (i,), ())])
        rows = b.select(by_us, rows, b.const(0, I64))
    parts, conj = 2 if is_complex else 1, i.params.get("conj", (False, False))
    regions = [
        _operand(b, left, ("p", "i") if turned_left else ("i", "p"), "ip", parts, conj[0]),
        _operand(b, right, ("j", "p") if turned_right else ("p", "j"), "pj", parts, conj[1]),
    ]
    inner, row, column = Builder(b.loc), Value(scalar(I64), "i"), Value(scalar(I64), "j")
    sums = [Value(scalar(out.type.dtype), "sum") for _ in range(parts)]
    for value, at in zip(sums, part_indices(inner, parts), strict=True):
        inner.store(value, out, row, column, *at)
    lies = tuple(k for k, ref in enumerate((left, right)) if is_strided(ref))
    params = {"in_place": lies} if lies else {}
    b.emit(OPS["product"], (rows, columns, terms), params, [*regions, inner.block([row, column, *sums], [])])


def _is_ours(b: Builder, bits: Value, shape: tuple[Value, Value, Value], itemsize: int) -> Value:
    """Whether the bit of a product's class says that it is ours."""
    rows, terms, columns = shape
    one, right = b.const(1, I64), b.mul(terms, columns)
    width = b.mul(columns, b.const(itemsize, I64))
    numbers = dict(zip(LIMITS, (rows, terms, b.mul(rows, right), width), strict=True))
    found = b.const(len(CLASSES) - 1, I64)
    for k, each in reversed(list(enumerate(CLASSES[:-1]))):
        limits = [b.le(number, b.const(getattr(each, name), I64)) for name, number in numbers.items() if getattr(each, name)]
        limits += [b.ge(right, b.const(each.right, I64))] if each.right else []
        limits += [b.ge(terms, b.const(each.deep, I64))] if each.deep else []
        limits += [b.ge(b.mul(rows, columns), b.const(each.results, I64))] if each.results else []
        fits = limits[0]
        for limit in limits[1:]:
            fits = b.bitand(fits, limit)
        found = b.select(fits, b.const(k, I64), found)
    return b.eq(b.bitand(b.raw_shr(bits, found), one), one)


def _operand(b: Builder, ref: Value, index: tuple[str, str], order: str, parts: int, conj: bool) -> Block:
    inner = Builder(b.loc)
    places = {name: Value(scalar(I64), name) for name in order}
    found = [inner.load(ref, *(places[name] for name in index), *at) for at in part_indices(inner, parts)]
    return inner.block([places[name] for name in order], [found[0], inner.neg(found[1])] if conj else found)


def part_indices(b: Builder, parts: int) -> Sequence[tuple[Value, ...]]:
    """What is behind the index of an element: nothing, or of a complex one the position of each of its parts."""
    return [()] if parts == 1 else [(b.const(k, I64),) for k in range(parts)]


def _size(b: Builder, extent: Extent) -> Value:
    return b.const(extent, I64) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]
