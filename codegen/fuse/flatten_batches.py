"""merged: elementwise ops on a matrix product whose rows, or whose batch, are several axes are done in the product's own shape.

``x[b,s,k] @ w[k,n]`` is one product of b s rows, seen as ``[b,s,n]``. What reads it elementwise could not share its kernel, whose
space is ``[b s,n]``; so bias, activation and sums over all rows are of that shape, too, and what else reads them sees views.
"""

from __future__ import annotations

from pullback.codegen.fuse.matmul_fusion import carries
from pullback.ir.core.builder import Builder
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import Shape
from pullback.ir.core.value import Value
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import broadcast, reshape
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.editing.dce import dce


def merged(function: Function, target: str) -> Function:
    """The function with elementwise ops on the results of products in the products' shape."""
    makers = {v: i for i in function.instructions for v in i.results}
    seen = {i for i in function.instructions if i.op is reshape and _of_product(i, makers, target)}
    return dce(_Merging(function, seen).run()) if seen else function


def _of_product(i: Instruction, makers: dict[Value, Instruction], target: str) -> bool:
    """Whether a product is seen with its first axis as several."""
    (operand,) = i.operands
    made, flat, shape = makers.get(operand), operand.type.shape, i.result.type.shape
    split = len(shape) - len(flat) + 1
    return made is not None and carries(made, target, makers.get) and split > 1 and shape[split:] == flat[1:]


class _Merging:
    """``flat``: for a value that is seen with several first axes, the value that it is a view of."""

    def __init__(self, function: Function, seen: set[Instruction]) -> None:
        self.function, self.seen = function, seen
        self.b = Builder()
        self.makers: dict[Value, Instruction] = {}
        self.now: dict[Value, Value] = {}
        self.flat: dict[Value, Value] = {}

    def run(self) -> Function:
        for i in self.function.instructions:
            operands = tuple(self.now.get(v, v) for v in i.operands)
            found = self.made(i, operands)
            if found is not None:
                self.now[i.result] = found
                continue
            made = Instruction(i.op, operands, i.results, i.params, i.regions, i.loc)
            self.b.append(made)
            self.makers.update((v, made) for v in i.results)
            if i in self.seen:
                self.flat[i.result] = operands[0]
        results = [self.now.get(v, v) for v in self.function.results]
        return self.b.function(self.function.name, self.function.parameters, results, self.function.kind)

    def made(self, i: Instruction, operands: tuple[Value, ...]) -> Value | None:
        """What stands for an instruction that is done on a product's shape; None for others."""
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
        found: Value = b.reshape(value, shape=i.result.type.shape)
        self.flat[found] = value
        return found

    def as_flat(self, b: Builder, value: Value, shape: Shape, split: int) -> Value | None:
        """A value of the product's shape that others see as this one; None if there is none without a copy."""
        if value in self.flat:
            return self.flat[value] if self.flat[value].type.shape == shape else None
        made = self.makers.get(value)
        if made is None:
            whole: Value = b.reshape(value, shape=shape)
            return whole
        if made.op is not broadcast or not set(range(split)) <= set(made.params["axes"]):
            return None
        axes = (0, *(a - split + 1 for a in made.params["axes"] if a >= split))
        found: Value = b.broadcast(made.operands[0], axes=axes, shape=shape)
        return found
