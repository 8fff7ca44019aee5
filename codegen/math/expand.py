"""Expand functions that have no machine instruction into kernel ops by their recipes; equal ops are emitted once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.codegen.math.recipes import HALF, RECIPES, TAKES_16_BITS
from pullback.ir.core.builder import Builder
from pullback.ir.core.op import OPS, Op
from pullback.ir.core.structure import Block, Instruction, Loc, key_of
from pullback.ir.core.types import F32, DType
from pullback.ir.core.value import Value
from pullback.ir.ops.elementwise.elementwise import Elementwise, cast
from pullback.ir.ops.kernel.float_parts import cold_function

Known = dict[Any, tuple[Value, ...]]
Functions = dict[str, Instruction]
"""The functions that code rarely calls, by name."""


class Expander(Builder):
    """A builder that appends kernel ops to a block, each once, and expands the ones that have recipes. Rarely called functions
    go to ``cold``.

    ``inside`` a recipe, casts and shifts are marked as in range, which recipes guarantee.
    """

    def __init__(self, loc: Loc, instructions: list[Instruction], known: Known, cold: Functions, inside: bool = False) -> None:
        super().__init__(loc, instructions)
        self.emitted = known
        self.cold = cold
        self.inside = inside

    def emit(
        self, op: Op, operands: Sequence[Value] = (), params: dict[str, Any] | None = None, regions: Sequence[Block] = ()
    ) -> tuple[Value, ...]:
        params = params or {}
        if op is cold_function:
            self.cold.setdefault(params["function"], Instruction(op, (), (), params, tuple(regions)))
            return ()
        if self.inside and op is cast:
            params = {**params, "in_range": True}
        if self.inside and op.name in ("shl", "shr"):
            op = OPS[f"raw_{op.name}"]
        key = key_of(op, operands, params)
        results = self.emitted.get(key)
        if results is None:
            is_expanded = needs_recipe(op, operands)
            results = (self.expand(op, operands, params),) if is_expanded else super().emit(op, operands, params, regions)
            self.emitted[key] = results
        return results

    def region(self) -> Expander:
        return Expander(self.loc, [], {}, self.cold, self.inside)

    def expand(self, op: Op, operands: Sequence[Value], params: dict[str, Any]) -> Value:
        inner = Expander(self.loc, self.instructions, self.emitted, self.cold, True)
        dtype = operands[0].type.dtype
        if dtype in HALF and op.name not in TAKES_16_BITS:
            widened = [inner.cast(v, dtype=F32) for v in operands]
            narrowed: Value = inner.cast(inner.emit(op, widened, params)[0], dtype=dtype)
            return narrowed
        return RECIPES[op.name](inner, *operands, **params)


def needs_recipe(op: Op, operands: Sequence[Value]) -> bool:
    if not isinstance(op, Elementwise):
        return False
    dtype: DType = operands[1 if op.gives == "select" else 0].type.dtype
    lowering = op.template("llvm", dtype.kind)
    return lowering == "recipe" or (lowering.startswith("ufunc:") and dtype in HALF)


_EXPANDED: dict[tuple[Any, ...], tuple[Instruction, ...]] = {}


def expanded(i: Instruction) -> tuple[Instruction, ...]:
    """Return the expansion of a function where no other values are known."""
    key = key_of(i.op, [v.type.dtype for v in i.operands], i.params)
    if key not in _EXPANDED:
        instructions: list[Instruction] = []
        Expander(i.loc, instructions, {}, {}).emit(i.op, [Value(v.type, "x") for v in i.operands], dict(i.params))
        _EXPANDED[key] = tuple(instructions)
    return _EXPANDED[key]
