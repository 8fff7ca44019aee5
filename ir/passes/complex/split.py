"""Split complex values into real ones.

Requires: a func without gradient instructions. Keeps: the types of parameters and results, and all other instructions.

A complex value becomes a pair of real values, its parts, or a real array with a last axis of extent 2, which is its memory
layout. Elementwise ops and sums work on pairs. Ops that only move elements, and those that read or write at positions, work on
the array if it exists. An op with a kernel of its own (a factorisation, a product, a recurrence) and a host callback keep
their complex operands and results, between ``view_as_complex`` and ``view_as_real``; the kernel gets real references with a
last axis of extent 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import I64
from pullback.ir.core.value import Value
from pullback.ir.ops.array.complex import Reinterpret
from pullback.ir.ops.array.contract import Contract, is_matrix_product
from pullback.ir.ops.array.contract import split as subscripts
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.array.index import Gather, Place, Scatter
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.array.scan import Accumulate
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.complex import functions as functions
from pullback.ir.passes.complex.arithmetic import PARTS, Pair, is_nan, like
from pullback.ir.passes.editing.cse import cse
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.simplify.simplify import simplify
from pullback.ir.passes.transforms.expand import replay


def split(function: Function, products: bool = False) -> Function:
    """Return the function with complex values only at interfaces of kernels and callbacks, simplified if there were others.
    ``products``: matrix products have complex kernels; otherwise each is expanded into four real products."""
    values = [*function.parameters, *(v for i in function.instructions for v in i.results)]
    if not any(map(_is_complex, values)):
        return function
    return dce(cse(simplify(_Split(function, products).run())))


def _is_complex(value: Value) -> bool:
    return value.type.dtype.is_complex


class _Split:
    def __init__(self, function: Function, products: bool) -> None:
        self.function, self.products = function, products
        self.b = Builder()
        self.definitions = {v: i for i in function.instructions for v in i.results}
        self.as_real: dict[Value, Value] = {v: v for v in function.parameters if not _is_complex(v)}
        self.native: dict[Value, Value] = {v: v for v in function.parameters if _is_complex(v)}
        self.arrays: dict[Value, Value] = {}
        self.pairs: dict[Value, Pair] = {}

    def run(self) -> Function:
        for i in self.function.instructions:
            if any(map(_is_complex, (*i.operands, *i.results))):
                self.instruction(self.b.at(i.loc, i.results[0].name if i.results else ""), i)
            else:
                self.emit_natively(i, [self.as_real[v] for v in i.operands])
        results = [self.result(v) for v in self.function.results]
        return self.b.function(self.function.name, self.function.parameters, results, self.function.kind)

    # the forms of a complex value

    def array(self, value: Value) -> Value:
        """Return the real array with the memory layout of a complex value."""
        if value not in self.arrays:
            if value in self.native:
                self.arrays[value] = self.b.view_as_real(self.native[value])
            else:
                self.arrays[value] = self.b.interleave(*self.pairs[value])
        return self.arrays[value]

    def pair(self, value: Value) -> Pair:
        """Return the real and the imaginary part of a complex value."""
        if value not in self.pairs:
            array = self.array(value)
            self.pairs[value] = self.b.component(array, index=0), self.b.component(array, index=1)
        return self.pairs[value]

    def is_in_memory(self, value: Value) -> bool:
        return value in self.native or value in self.arrays

    def complex_value(self, value: Value) -> Value:
        """Return a complex value as one value, for an op that takes it; a real value is returned unchanged."""
        if not _is_complex(value):
            return self.as_real[value]
        if value not in self.native:
            self.native[value] = self.b.view_as_complex(self.array(value))
        return self.native[value]

    def result(self, value: Value) -> Value:
        return self.complex_value(value)

    def parts(self, value: Value) -> Any:
        return self.pair(value) if _is_complex(value) else self.as_real[value]

    def define(self, value: Value, replacement: Any) -> None:
        """Record the replacement of a value: a pair, or a real value."""
        if isinstance(replacement, tuple):
            self.pairs[value] = replacement
        elif _is_complex(value):
            self.arrays[value] = replacement
        else:
            self.as_real[value] = replacement

    def emit_natively(self, i: Instruction, operands: Sequence[Value]) -> None:
        """Emit an instruction that takes and returns complex values."""
        for value, new in zip(i.results, replay(self.b, i, operands), strict=True):
            (self.native if _is_complex(value) else self.as_real)[value] = new

    # instructions

    def instruction(self, b: Any, i: Instruction) -> None:
        params = dict(i.params)
        match i.op:
            case Constant():
                constant = complex(params["value"])
                part = params["dtype"].part
                self.define(i.result, (b.const(constant.real, part), b.const(constant.imag, part)))
            case Reinterpret():
                self.emit_natively(i, [self.complex_value(v) for v in i.operands])
            case Elementwise():
                self.define(i.result, PARTS[i.op.name](b, *map(self.parts, i.operands), **params))
            case Reindex():
                self.reindex(b, i, params)
            case Reduce() if i.op.name in REDUCTIONS:
                self.define(i.result, REDUCTIONS[i.op.name](b, self.pair(i.operands[0]), tuple(params["axes"])))
            case Reduce() if not params["axes"]:
                self.define(i.result, self.pair(i.operands[0]))
            case Contract() if not (self.products and is_matrix_product(i)):
                self.define(i.result, _contracted(b, self.pair(i.operands[0]), self.pair(i.operands[1]), params["spec"]))
            case Gather() | Scatter() | Place():
                operands = [self.array(v) if _is_complex(v) else self.as_real[v] for v in i.operands]
                self.define(i.result, b.emit(i.op, operands, _extended(params, i.result.type.rank))[0])
            case Accumulate() if i.op.combine == "add":
                self.define(i.result, tuple(b.emit(i.op, (x,), params)[0] for x in self.pair(i.operands[0])))
            case Contract():
                self.product(b, i, params)
            case _:
                self.emit_natively(i, [self.complex_value(v) for v in i.operands])

    def product(self, b: Any, i: Instruction, params: dict[str, Any]) -> None:
        """Emit a matrix product that conjugates its operands itself."""
        producers = [self.definitions.get(v) for v in i.operands]
        conjugates = {k.result: k.operands[0] for k in producers if k is not None and k.op is OPS["conj"]}
        operands = [conjugates.get(v, v) for v in i.operands]
        if conjugates:
            params["conj"] = tuple(v in conjugates for v in i.operands)
        (self.native[i.result],) = b.emit(i.op, [self.complex_value(v) for v in operands], params)

    def reindex(self, b: Any, i: Instruction, params: dict[str, Any]) -> None:
        if i.op.view or all(v not in self.pairs and self.is_in_memory(v) for v in i.operands):  # type: ignore[attr-defined]
            operands = [self.array(v) for v in i.operands]
            self.define(i.result, b.emit(i.op, operands, _extended(params, i.result.type.rank))[0])
            return
        pairs = [self.pair(v) for v in i.operands]
        self.define(i.result, tuple(b.emit(i.op, list(xs), params)[0] for xs in zip(*pairs, strict=True)))


def _extended(params: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the params of an op on arrays with one more axis, taken in full. ``rank``: rank of the result without that axis."""
    extended = dict(params)
    if "shape" in extended:
        extended["shape"] = (*extended["shape"], 2)
    if "perm" in extended:
        extended["perm"] = (*extended["perm"], rank)
    if "step" in extended:
        extended["start"], extended["step"] = (*extended["start"], None), (*extended["step"], 1)
    return extended


def _contracted(b: Any, z: Pair, w: Pair, spec: str) -> Pair:
    (left, right), out = subscripts(spec)
    space = max(left, right, key=len)
    axes = tuple(k for k, letter in enumerate(space) if letter not in out)
    if not axes or not set(left + right) <= set(space):
        return _by_parts(b, z, w, spec)
    # two sums, one per part of the result, instead of four
    real, imaginary = (b.sum(part, axes=axes) for part in _by_parts(b, z, w, f"{left},{right}->{space}"))
    kept = [letter for letter in space if letter in out]
    perm = tuple(kept.index(letter) for letter in out)
    return b.transpose(real, perm=perm), b.transpose(imaginary, perm=perm)


def _by_parts(b: Any, z: Pair, w: Pair, spec: str) -> Pair:
    (x, y), (u, v) = z, w
    product = partial(b.contract, spec=spec)
    return b.sub(product(x, u), product(y, v)), b.add(product(x, v), product(y, u))


# reductions


def _sum(b: Any, z: Pair, axes: tuple[int, ...]) -> Pair:
    return b.sum(z[0], axes=axes), b.sum(z[1], axes=axes)


def _spread(b: Any, x: Value, axis: int, like: Value) -> Value:
    result: Value = b.broadcast(x, axes=(axis,), shape=like.type.shape)
    return result


def _position(name: str) -> Callable[..., Value]:
    """Return the lowering of argmax or argmin: the index of the first element with a NaN, else of the first one with the
    extreme imaginary part among those with the extreme real part."""
    worst = float("-inf") if name == "max" else float("inf")

    def position(b: Any, z: Pair, axes: tuple[int, ...]) -> Value:
        (x, y), (axis,) = z, axes
        bad = is_nan(b, z)
        extreme = getattr(b, name)
        leads = b.eq(x, _spread(b, extreme(x, axes=axes), axis, x))
        imaginary = b.select(leads, y, like(b, worst, y))
        best = b.bitand(leads, b.eq(y, _spread(b, extreme(imaginary, axes=axes), axis, y)))
        any_bad = _spread(b, b.any(bad, axes=axes), axis, x)
        index: Value = b.argmax(b.select(any_bad, bad, best), axes=axes)
        return index

    return position


def _extreme(name: str) -> Callable[..., Pair]:
    position = _position(name)

    def extreme(b: Any, z: Pair, axes: tuple[int, ...]) -> Pair:
        for axis in reversed(axes):
            at = position(b, z, (axis,))
            around = [b.iota(shape=at.type.shape, axis=k, dtype=I64) for k in range(at.type.rank)]
            where = [*around[:axis], at, *around[axis:]]
            every = tuple(range(len(where)))
            z = b.gather(z[0], *where, axes=every), b.gather(z[1], *where, axes=every)
        return z

    return extreme


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _sum, "argmax": _position("max"), "argmin": _position("min"), "max": _extreme("max"), "min": _extreme("min"),
}  # fmt: skip
