"""Kernel ops in place of functions that have no instruction: each once, by its recipe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pullback.codegen.math.recipes import HALF, OF_BITS, RECIPES
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
    """Appends kernel ops to a block, each once, spelling out those that are recipes. What is rarely called goes to ``cold``.

    ``inside`` a recipe, casts and shifts are in range: recipes promise it.
    """

    def __init__(
        self, loc: Loc, instructions: list[Instruction], known: Known, cold: Functions, inside: bool = False
    ) -> None:
        super().__init__(loc, instructions)
        self.known = known
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
        found = self.known.get(key)
        if found is None:
            spelled = needs_recipe(op, operands)
            found = (self.spell(op, operands, params),) if spelled else super().emit(op, operands, params, regions)
            self.known[key] = found
        return found

    def region(self) -> Expander:
        return Expander(self.loc, [], {}, self.cold, self.inside)

    def spell(self, op: Op, operands: Sequence[Value], params: dict[str, Any]) -> Value:
        inner = Expander(self.loc, self.instructions, self.known, self.cold, True)
        dtype = operands[0].type.dtype
        if dtype in HALF and op.name not in OF_BITS:
            wide = [inner.cast(v, dtype=F32) for v in operands]
            found: Value = inner.cast(inner.emit(op, wide, params)[0], dtype=dtype)
            return found
        return RECIPES[op.name](inner, *operands, **params)


def needs_recipe(op: Op, operands: Sequence[Value]) -> bool:
    if not isinstance(op, Elementwise):
        return False
    dtype: DType = operands[1 if op.gives == "select" else 0].type.dtype
    spelling = op.spelling("llvm", dtype.kind)
    return spelling == "recipe" or (spelling.startswith("ufunc:") and dtype in HALF)


_EXPANDED: dict[tuple[Any, ...], tuple[Instruction, ...]] = {}


def expanded(i: Instruction) -> tuple[Instruction, ...]:
    """What a function is spelled out as where nothing else is known."""
    key = key_of(i.op, [v.type.dtype for v in i.operands], i.params)
    if key not in _EXPANDED:
        made: list[Instruction] = []
        Expander(i.loc, made, {}, {}).emit(i.op, [Value(v.type, "x") for v in i.operands], dict(i.params))
        _EXPANDED[key] = tuple(made)
    return _EXPANDED[key]
