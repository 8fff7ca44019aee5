"""flatten_batches: compute elementwise ops on a matrix product whose rows, or whose batch, are several axes in the product's
own shape.

``x[b,s,k] @ w[k,n]`` is one product of b s rows, viewed as ``[b,s,n]``. Elementwise readers of the view could not share its
kernel, whose space is ``[b s,n]``; so bias, activation and sums over all rows are computed in that shape, and their other
readers get views.
"""

from __future__ import annotations

from pullback.codegen.fuse.matmul_fusion import may_fuse
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, reshape
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.dce import dce


def flatten_batches(function: Function, target: str) -> Function:
    """Return the function with elementwise ops on the results of products in the products' shape."""
    makers = {v: i for i in function.instructions for v in i.results}
    seen = {i for i in function.instructions if i.op is reshape and _splits_product(i, makers, target)}
    return dce(_Flattening(function, seen).run()) if seen else function


def _splits_product(i: Instruction, makers: dict[Value, Instruction], target: str) -> bool:
    """Return whether a reshape splits the first axis of a product."""
    (operand,) = i.operands
    product, flat, shape = makers.get(operand), operand.type.shape, i.result.type.shape
    split = len(shape) - len(flat) + 1
    return product is not None and may_fuse(product, target, makers.get) and split > 1 and shape[split:] == flat[1:]


class _Flattening:
    """Rewrites a function. ``flat``: for a value with split first axes, the value that it is a view of."""

    def __init__(self, function: Function, seen: set[Instruction]) -> None:
        self.function, self.seen = function, seen
        self.b = Builder()
        self.makers: dict[Value, Instruction] = {}
        self.replacement: dict[Value, Value] = {}
        self.flat: dict[Value, Value] = {}

    def run(self) -> Function:
        for i in self.function.instructions:
            operands = tuple(self.replacement.get(v, v) for v in i.operands)
            value = self.flattened(i, operands)
            if value is not None:
                self.replacement[i.result] = value
                continue
            copy = Instruction(i.op, operands, i.results, i.params, i.regions, i.loc)
            self.b.append(copy)
            self.makers.update((v, copy) for v in i.results)
            if i in self.seen:
                self.flat[i.result] = operands[0]
        results = [self.replacement.get(v, v) for v in self.function.results]
        return self.b.function(self.function.name, self.function.parameters, results, self.function.kind)

    def flattened(self, i: Instruction, operands: tuple[Value, ...]) -> Value | None:
        """Return the value that replaces an instruction, computed in a product's shape; None if it is kept."""
        first = next((self.flat[v] for v in operands if v in self.flat), None)
        if first is None or not isinstance(i.op, Elementwise | Reduce):
            return None
        b, shape = self.b.at(i.loc, i.results[0].name), first.type.shape
        split = operands[0].type.rank - len(shape) + 1
        if isinstance(i.op, Reduce):
            axes = tuple(i.params["axes"])
            if i.op.gives_position or not set(range(split)) <= set(axes):
                return None
            return b.emit(i.op, (first,), {**i.params, "axes": (0, *(a - split + 1 for a in axes[split:]))})[0]
        flat = [self.as_flat(b, v, shape, split) for v in operands]
        if any(v is None for v in flat):
            return None
        (value,) = b.emit(i.op, [v for v in flat if v is not None], dict(i.params))
        view: Value = b.reshape(value, shape=i.result.type.shape)
        self.flat[view] = value
        return view

    def as_flat(self, b: Builder, value: Value, shape: Shape, split: int) -> Value | None:
        """Return a value of the product's shape of which ``value`` is a view; None if that takes a copy."""
        if value in self.flat:
            return self.flat[value] if self.flat[value].type.shape == shape else None
        definition = self.makers.get(value)
        if definition is None:
            reshaped: Value = b.reshape(value, shape=shape)
            return reshaped
        if definition.op is not broadcast or not set(range(split)) <= set(definition.params["axes"]):
            return None
        axes = (0, *(a - split + 1 for a in definition.params["axes"] if a >= split))
        flat: Value = b.broadcast(definition.operands[0], axes=axes, shape=shape)
        return flat
