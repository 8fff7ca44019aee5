"""thin: matrix products in loops, that may have one row, one column or one term, get loops of their own for these.

Requires: a lowered module for the CPU. Keeps: its meaning. A library packs its operands before it multiplies, which pays only if
each is read several times. The sizes are known when the kernel runs, so both ways are in it. Kernels that no loop launches stay
as they are: there a call is not worth the code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pullback.ir.builder import Builder
from pullback.ir.op import OPS
from pullback.ir.ops.library import gemm
from pullback.ir.ops.program import launch
from pullback.ir.structure import Block, Instruction, Module, Value, walk
from pullback.ir.types import I64, Extent, scalar

UNROLLED = 4


def thin(module: Module) -> Module:
    """The module with loops for thin products in the kernels that its program launches in loops and branches."""
    program, *kernels = module.functions
    launched = {
        i.params["kernel"] for outer in program.instructions for region in outer.regions for i in walk(region) if i.op is launch
    }
    return Module((program, *(replace(k, body=_spelled(k.body)) if k.name in launched else k for k in kernels)))


def _spelled(block: Block) -> Block:
    made: list[Instruction] = []
    for i in block.instructions:
        if i.op is gemm and i.operands[0].type.rank == 2 and not (i.params["ta"] and i.params["tb"]):
            _Product(Builder(i.loc, made), i).spell()
        else:
            made.append(replace(i, regions=tuple(map(_spelled, i.regions))))
    return replace(block, instructions=tuple(made))


class _Product:
    """The ways to do one product c = a b: of which one row, one column or one term makes a loop, each if it is so."""

    def __init__(self, b: Builder, i: Instruction) -> None:
        self.b, self.i = b, i
        self.left, self.right, self.out = i.operands
        self.transposed = i.params["ta"]
        shape = self.left.type.shape
        self.rows, self.columns = (self.size(b, e) for e in self.out.type.shape)
        self.terms = self.size(b, shape[0] if self.transposed else shape[1])

    def spell(self) -> None:
        b = self.b
        one = b.const(1, I64)
        is_row = b.eq(self.rows, one)
        if self.i.params["tb"]:
            second, ways = b.eq(self.columns, one), (self.row_of_dots, self.column_of_dots)
        else:
            second, ways = b.eq(self.terms, one), (self.row_of_sums, self.outer_product)
        self.when(is_row, ways[0])
        self.when(b.bitand(second, b.bitnot(is_row)), ways[1])
        self.when(b.bitnot(b.bitor(second, is_row)), lambda b: b.append(self.i))

    # c[0, j] = sum of a[0, k] b[k, j]

    def row_of_sums(self, b: Builder) -> None:
        out = b.sub_ref(self.out, b.const(0, I64))
        zero = b.const(0.0, out.type.dtype)
        self.each(b, self.columns, lambda b, j: b.store(zero, out, j))

        def add(b: Builder, terms: list[Value]) -> None:
            factors = [self.factor(b, k) for k in terms]

            def element(b: Builder, j: Value) -> None:
                total = b.load(out, j)
                for k, factor in zip(terms, factors, strict=True):
                    total = b.add(total, b.mul(factor, b.load(self.right, k, j)))
                b.store(total, out, j)

            self.each(b, self.columns, element)

        self.several(b, self.terms, add)

    # c[i, j] = a[i, 0] b[0, j]

    def outer_product(self, b: Builder) -> None:
        row = b.sub_ref(self.right, b.const(0, I64))

        def fill(b: Builder, i: Value) -> None:
            zero = b.const(0, I64)
            factor = b.load(self.left, zero, i) if self.transposed else b.load(self.left, i, zero)
            out = b.sub_ref(self.out, i)
            self.each(b, self.columns, lambda b, j: b.store(b.mul(factor, b.load(row, j)), out, j))

        self.each(b, self.rows, fill)

    # c[0, j] = sum of a[0, k] b[j, k]; c[i, 0] = sum of a[i, k] b[0, k]

    def row_of_dots(self, b: Builder) -> None:
        out = b.sub_ref(self.out, b.const(0, I64))
        self.dots(b, self.left, self.right, self.columns, lambda b, value, j: b.store(value, out, j))

    def column_of_dots(self, b: Builder) -> None:
        zero = b.const(0, I64)
        self.dots(b, self.right, self.left, self.rows, lambda b, value, i: b.store(value, self.out, i, zero))

    def dots(self, b: Builder, vector: Value, matrix: Value, count: Value, put: Callable[[Builder, Value, Value], None]) -> None:
        """The products of the only row of ``vector`` with each row of ``matrix``."""
        vector = b.sub_ref(vector, b.const(0, I64))

        def some(b: Builder, rows: list[Value]) -> None:
            refs = [b.sub_ref(matrix, r) for r in rows]
            inner, k = Builder(b.loc), Value(scalar(I64), "k")
            factor = inner.load(vector, k)
            body = inner.block([k], [inner.mul(factor, inner.load(ref, k)) for ref in refs])
            zero = b.const(0.0, matrix.type.dtype)
            combine = {"combine": ("add",) * len(rows)}
            for value, r in zip(b.emit(OPS["for"], (self.terms, *[zero] * len(rows)), combine, [body]), rows, strict=True):
                put(b, value, r)

        self.several(b, count, some)

    # what kernels are made of

    @staticmethod
    def size(b: Builder, extent: Extent) -> Value:
        return b.const(extent, I64) if isinstance(extent, int) else b.emit(OPS["extent"], (), {"size": extent})[0]

    def factor(self, b: Builder, k: Value) -> Value:
        zero = b.const(0, I64)
        found: Value = b.load(self.left, k, zero) if self.transposed else b.load(self.left, zero, k)
        return found

    def when(self, condition: Value, way: Callable[[Builder], None]) -> None:
        inner = Builder(self.i.loc)
        way(inner)
        self.b.emit(OPS["if"], (condition,), {}, [inner.block([], [])])

    @staticmethod
    def each(b: Builder, count: Value, element: Callable[[Builder, Value], None]) -> None:
        inner, index = Builder(b.loc), Value(scalar(I64), "i")
        element(inner, index)
        b.emit(OPS["for"], (count,), {}, [inner.block([index], [])])

    def several(self, b: Builder, count: Value, some: Callable[[Builder, list[Value]], None]) -> None:
        """``some`` of all numbers below ``count``, a few at a time, and then one by one."""
        two = b.const(2, I64)
        rounds = b.raw_shr(count, two)
        done = b.raw_shl(rounds, two)

        def round_of(b: Builder, r: Value) -> None:
            first = b.raw_shl(r, two)
            some(b, [first, *(b.add(first, b.const(k, I64)) for k in range(1, UNROLLED))])

        self.each(b, rounds, round_of)
        self.each(b, b.sub(count, done), lambda b, r: some(b, [b.add(done, r)]))
